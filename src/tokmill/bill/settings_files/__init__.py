"""Settings of training from other programs' files: DeepSpeed, Transformers, axolotl.

Precedence: option, settings file, tokmill's configuration file, default. A file gives only what it
says; keys that ask for something and are not used are listed.
"""

from tokmill.bill.settings_files.axolotl import read_axolotl
from tokmill.bill.settings_files.deepspeed import read_deepspeed
from tokmill.bill.settings_files.mapping import ReadSettings
from tokmill.bill.settings_files.training_arguments import read_training_arguments

__all__ = ["ReadSettings", "read_axolotl", "read_deepspeed", "read_training_arguments"]
