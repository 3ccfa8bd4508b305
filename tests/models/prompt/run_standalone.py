"""Runs stand-alone modules, in a process that can import nothing but PyTorch: ``python -I run_standalone.py FOLDER``.

For every ``N.py`` in the folder there is ``N.pt`` with the original's parameters, inputs and outputs. Prints, as
JSON, what is wrong with each, by number; an empty string is a module that does the same as its original.
"""

import json
import runpy
import sys
import traceback
from pathlib import Path

FORBIDDEN = (
    "transformers",
    "pytest_kernelllm",
    "llm_blocks",
    "marked",
    "library_targets",
    "triton_candidate",
)


class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FORBIDDEN:
            raise ImportError(f"{name} must not be imported")
        return


def main(folder):
    sys.meta_path.insert(0, Forbid())
    import torch

    def check(path):
        space = runpy.run_path(str(path), run_name="standalone")
        held = torch.load(path.with_suffix(".pt"), weights_only=True)
        model = space["Model"](*space["get_init_inputs"]())
        assert type(model).__name__ == "Model"
        if held["dtype"]:
            model.to(getattr(torch, held["dtype"]))
        model.load_state_dict(held["state"])
        model.train(held["training"])
        with torch.no_grad():
            torch.manual_seed(0)
            # Where memory lies decides in which order a library adds up, so the last bits may differ.
            torch.testing.assert_close(model(*held["inputs"]), held["outputs"], equal_nan=True)
        with torch.device("meta"):  # without memory
            made = space["get_inputs"]()
        assert type(made) is list
        described = [(tuple(x.shape), str(x.dtype)) if torch.is_tensor(x) else x for x in made]
        assert described == [tuple(x) if type(x) is list else x for x in held["described"]], described

    found = {}
    for path in sorted(folder.glob("*.py")):
        try:
            check(path)
            found[path.stem] = ""
        except Exception:
            found[path.stem] = traceback.format_exc()
    assert "transformers" not in sys.modules
    assert "pytest_kernelllm" not in sys.modules
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
