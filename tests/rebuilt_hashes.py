"""Print the SHA-256 of every file that follows from committed rows, including pictures.

    python tests/rebuilt_hashes.py > before.txt

Run it before and after a change that must not alter results, on one machine: the lists must be equal. It
takes minutes.
"""

from hashlib import sha256

from experiments.rebuild import RESULTS, rebuild
from experiments.results.made_by import made_by

if __name__ == "__main__":
    for folder, made in made_by(RESULTS).items():
        if made.pages:
            for name, content in rebuild(folder, pictures=True).items():
                path = (folder / name).relative_to(RESULTS)
                print(sha256(content).hexdigest(), path, flush=True)
