"""Real trials: what random arms, the best arm and policies, private ones too, earn of the people of each.

`play_study` plays policies on a semi-synthetic replay, whose outcome model is fitted to the trial, and on the log
itself.  Data are read from installed packages (the extra ``data``) and never shipped.
"""

from __future__ import annotations

from tacit.studies.catalogue import STUDIES_OF_TRIALS
from tacit.studies.data import package_file
from tacit.studies.playing import StudyAnswer, StudyLine, StudyQuestion, play_study
from tacit.studies.trials import TrialStudy, TrialTable

__all__ = [
    "STUDIES_OF_TRIALS",
    "StudyAnswer",
    "StudyLine",
    "StudyQuestion",
    "TrialStudy",
    "TrialTable",
    "package_file",
    "play_study",
]
