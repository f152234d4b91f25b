"""An encyclopedia dump to a trained toy model, in some seconds on a CPU; needs torch."""

import torch
from torch import Tensor, nn

import tokmill

LENGTH, WIDTH, STEPS = 64, 64, 41

dataset = tokmill.pretrain(
    "data_samples/records.jsonl",
    tokenizer="data_samples/tokenizer",
    output="out/examples/dump",
    val_fraction=0.05,
)
print(dataset)


class ToyModel(nn.Module):  # type: ignore[misc]
    """Two layers of a causal transformer."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab_size, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        nn.init.normal_(self.token.weight, std=0.02)  # it is the head, too
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.register_buffer("future", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of the next tokens, (batch, length, vocabulary)."""
        x = self.token(ids) + self.position.weight
        x = self.layers(x, mask=self.future, is_causal=True)
        return x @ self.token.weight.T


torch.manual_seed(1)
model = ToyModel(dataset.vocab_size)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
loss_of = nn.CrossEntropyLoss()  # leaves out -100, the label of what is not trained

windows = tokmill.loader.windows(dataset.split("train"), LENGTH, shift=True)
loader = tokmill.loader.Loader(windows, batch=4, seed=1)  # without epochs it never ends
for step, batch in zip(range(STEPS), loader, strict=False):
    ids, labels = torch.as_tensor(batch["input_ids"]), torch.as_tensor(batch["labels"])
    loss = loss_of(model(ids).flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step:2d}: loss {loss.item():.2f}")

print("a training that stops continues with", loader.state_dict())
