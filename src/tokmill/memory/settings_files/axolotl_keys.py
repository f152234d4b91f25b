"""Keys of axolotl that have no setting here: those that touch memory, and those that do not."""

from __future__ import annotations

NOT_MODELLED = frozenset({
    "activation_offloading", "adam_beta3", "auto_find_batch_size", "batch_size",
    "ddp_bucket_cap_mb", "deepcompile", "diffusion", "dpo_use_liger_kernel", "dynamic_checkpoint",
    "ebft", "embeddings_skip_upcast", "expert_parallel_size", "experts_implementation",
    "flash_attn_d512", "fp32_norm_classes", "fp32_norms", "fp8",
    "fp8_enable_fsdp_float8_all_gather", "freeze_mm_modules", "full_finetune", "fused_attn_kernel",
    "gemma4_hybrid_attn_impl", "gpu_memory_limit", "large_head_attention", "layer_offloading",
    "liger_cross_entropy", "lisa_n_layers", "llama4_linearized_experts", "llmcompressor",
    "lora_modules_to_save", "lora_rank_pattern", "lora_target_parameters", "low_cpu_mem_usage",
    "max_memory", "max_packed_sequence_len", "model_config", "model_quantization_config",
    "model_quantization_config_kwargs", "neftune_noise_alpha", "noisy_embedding_alpha", "nvfp4",
    "optim_target_modules", "overrides_of_model_config", "overrides_of_model_kwargs", "peft",
    "peft_autocast_adapter_dtype", "peft_layer_replication", "peft_layers_pattern",
    "peft_layers_to_transform", "peft_trainable_token_indices", "process_reward_model", "qat",
    "quantization", "quantize_moe_experts", "relora", "relora_cpu_offload", "reward_model", "rl",
    "rope_scaling", "s2_attention", "save_only_model", "selective_checkpointing",
    "shrink_embeddings", "tiled_mlp", "tokens", "torch_compile", "torch_dtype", "trl",
    "unfrozen_parameters", "use_eaft", "use_kernels", "use_onebitllms", "use_pose",
    "use_scattermoe", "use_sonicmoe", "vllm",
})  # fmt: skip
"""Keys that may touch the memory of training, if their value asks for something."""

HARMLESS = frozenset({
    "accelerator_config", "adam_beta1", "adam_beta2", "adam_eps", "adam_epsilon", "adam_epsilon2",
    "added_tokens_overrides", "auto_resume_from_checkpoints", "axolotl_config_path",
    "batch_flattening", "bench_dataset", "center_rewards_coefficient", "chat_template",
    "chat_template_jinja", "chat_template_kwargs", "chunked_cross_entropy_num_chunks",
    "cls_model_config", "curriculum_sampling", "dataloader_drop_last",
    "dataset_exact_deduplication", "dataset_keep_in_memory", "dataset_num_proc",
    "dataset_prepared_path", "dataset_processes", "dataset_shard_idx", "dataset_shard_num",
    "datasets", "ddp", "ddp_broadcast_buffers", "ddp_find_unused_parameters", "ddp_timeout",
    "debug", "default_system_message", "device", "device_map", "do_bench_eval", "do_causal_lm_eval",
    "early_stopping_patience", "embedding_lr", "embedding_lr_scale", "eot_tokens", "eta_min",
    "evals_per_epoch", "evaluation_strategy", "excess_length_strategy",
    "experimental_skip_move_to_device", "fix_untrained_tokens", "flash_attn_cross_entropy",
    "flash_optimum", "flex_attn_compile_kwargs", "fsdp_final_state_dict_type", "fsdp_version",
    "gc_collect_steps", "gc_steps", "generate_samples", "generation_do_sample",
    "generation_max_new_tokens", "generation_prompt_ratio", "generation_temperature",
    "generation_top_k", "generation_top_p", "gptq_disable_exllama", "gptq_groupsize",
    "gptq_model_v1", "gradient_checkpointing_kwargs", "greater_is_better", "group_by_length",
    "heads_k_stride", "hf_use_auth_token", "include_tkps", "include_tokens_per_second",
    "is_falcon_derived_model", "is_llama_derived_model", "is_mistral_derived_model",
    "is_preprocess", "is_qwen_derived_model", "learning_rate", "liger_use_token_scaling",
    "lisa_layers_attribute", "lisa_step_interval", "local_rank", "lora_alpha", "lora_alpha_pattern",
    "lora_dropout", "lora_fan_in_fan_out", "lora_model_dir", "lora_on_cpu", "loraplus_lr_embedding",
    "loraplus_lr_ratio", "loss_watchdog_patience", "loss_watchdog_threshold", "lr_div_factor",
    "lr_groups", "lr_quadratic_warmup", "lr_scheduler", "lr_scheduler_kwargs", "max_grad_norm",
    "max_prompt_len", "mean_resizing_embeddings", "merge_lora", "merge_method",
    "metric_for_best_model", "min_sample_len", "model_type", "multipack_real_batches",
    "num_dataset_shards_to_save", "num_generation_samples", "num_labels", "optim_args",
    "output_dir", "pad_to_multiple_of", "pad_to_sequence_len", "peft_ensure_weight_tying",
    "peft_init_lora_weights", "peft_use_rslora", "preprocess_iterable", "pretrain_multipack_attn",
    "pretrain_multipack_buffer_size", "pretraining_dataset", "pretraining_sample_concatenation",
    "processor_kwargs", "processor_type", "profiler_steps", "profiler_steps_start",
    "push_dataset_to_hub", "qlora_sharded_model_loading", "reinit_weights", "remove_unused_columns",
    "resize_token_embeddings_to_32x", "resources_per_worker", "resume_from_checkpoint",
    "revision_of_model", "ring_attn_func", "sample_packing", "sample_packing_bin_size",
    "sample_packing_eff_est", "sample_packing_group_size", "sample_packing_mp_start_method",
    "sample_packing_sequentially", "save_first_step", "save_safetensors", "save_steps",
    "saves_per_epoch", "scaling_softmax", "sdpa_varlen", "seed", "shuffle_before_merging_datasets",
    "shuffle_merged_datasets", "skip_prepare_dataset", "special_tokens", "streaming",
    "streaming_multipack_buffer_size", "strict", "test_datasets", "tf32", "tiled_mlp_num_shards",
    "tiled_mlp_use_original_mlp", "torch_compile_backend", "torch_compile_mode",
    "torch_compile_options", "torch_empty_cache_steps", "torchdistx_path", "total_num_tokens",
    "total_supervised_tokens", "train_on_inputs", "trainer_cls", "trust_remote_code",
    "type_of_model", "use_comet", "use_mlflow", "use_otel_metrics", "use_ray", "use_swanlab",
    "use_tensorboard", "use_trackio", "use_wandb", "val_set_size", "warmup_ratio", "warmup_steps",
    "weight_decay",
})  # fmt: skip
"""Keys that do not touch the memory of training."""

HARMLESS_STARTS = (
    "wandb_", "mlflow_", "hf_mlflow_", "comet_", "trackio_", "swanlab_", "gradio_", "otel_",
    "ray_", "hub_", "logging_", "eval_", "bench_", "tokenizer_", "cosine_", "jagged_",
    "relora_prune_",
    # What belongs to a key that is itself listed: rl, optimizer, use_pose, use_eaft.
    "dpo_", "kto_", "cpo_", "orpo_", "simpo_", "rpo_", "rl_", "dion_", "qgalore_", "pose_", "eaft_",
    "precompute_ref_", "scaling_softmax_",
)  # fmt: skip
"""Prefixes of keys that do not affect memory either."""
