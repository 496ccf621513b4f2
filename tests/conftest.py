"""Triton's interpreter stands in for a GPU. It is chosen when a kernel is decorated, hence here."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
