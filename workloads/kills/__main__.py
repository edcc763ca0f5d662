"""kill -9 under load: nothing acknowledged is lost or counted twice, and no release is seen with two values.

    python -m workloads.kills http --kills 1000 [--connections 12]
    python -m workloads.kills host --kills 1000

`http`: a real `tacit serve` under clients that decide and reward with ids of their own, repeat what was not answered,
and sometimes what was, and under pollers that read every route and do what the page does.  `host`: the same store and
hosts without HTTP, whose groups come faster.  Rewards are held, expire and default, snapshots are frequent.  The
process is killed while it starts and recovers, at work, in the middle of commits and of snapshots, and started again on
the same folder; most processes are forked from one that has loaded everything, some are started from nothing.  In the
end the whole log, from the first snapshot on, is replayed undisturbed and compared with the last recovery, with
everything that was acknowledged and with every release that was seen.

``--mutant`` breaks the process in a stated way; the campaign must then fail.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from workloads.kills import hosted, served
from workloads.kills.mutants import MUTANTS


def main() -> None:
    """Run the campaign; exits with 1 when anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=("http", "host"))
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=served.CONNECTIONS, help="of clients, with http")
    parser.add_argument("--mutant", choices=MUTANTS)
    given = parser.parse_args()
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp())
    if given.form == "http":
        found = served.campaign(folder, given.kills, given.seed, given.mutant, connections=given.connections)
    else:
        found = hosted.campaign(folder, given.kills, given.seed, given.mutant)
    print(f"{found}\nin {time.monotonic() - begun:.0f} s")
    for words in found.wrong[:20]:
        print(words)
    if found.wrong:
        raise SystemExit(f"{len(found.wrong)} things are wrong; everything is kept in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
