from __future__ import annotations

import subprocess
import sys


def test_the_controller_imports_no_torch_and_optuna_only_for_a_study() -> None:
    code = (
        "import sys, autotune.tuner\n"
        "heavy = {'torch', 'optuna', 'mlflow', 'scipy', 'sklearn'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "import autotune.search.samplers, autotune.search.study\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False"]
