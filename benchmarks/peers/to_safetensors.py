"""A GGUF model as a bfloat16 Hugging Face folder, for engines that do not read GGUF: GGUF FOLDER.

The same weights, dequantized. Runs in vLLM's environment.
"""

import sys
from pathlib import Path

import torch
import transformers


def main() -> None:
    source, target = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    place = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**place, dtype=torch.bfloat16)
    model.config.quantization_config = None
    del model.config.quantization_config
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**_shape(model.config)))
    plain.load_state_dict(model.state_dict())
    plain.to(torch.bfloat16).save_pretrained(target)
    transformers.AutoTokenizer.from_pretrained(**place).save_pretrained(target)


def _shape(config) -> dict:
    private = ("quantization_config", "_name_or_path", "transformers_version")
    return {key: value for key, value in config.to_dict().items() if key not in private}


if __name__ == "__main__":
    main()
