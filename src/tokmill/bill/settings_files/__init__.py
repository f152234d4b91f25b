"""Settings of training from other programs' files: DeepSpeed, Transformers, axolotl.

Of two sources of a setting the first wins: option, settings file, tokmill's configuration file,
default. Keys of a file that are not used are listed.
"""

from tokmill.bill.settings_files.axolotl import read_axolotl
from tokmill.bill.settings_files.deepspeed import read_deepspeed
from tokmill.bill.settings_files.settings_file import ReadSettings
from tokmill.bill.settings_files.training_arguments import read_training_arguments

__all__ = ["ReadSettings", "read_axolotl", "read_deepspeed", "read_training_arguments"]
