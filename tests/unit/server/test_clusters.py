"""Clusters in the settings: what they are called, where they are, and how many tasks they run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tidemill.errors import InvalidInput
from tidemill.server.settings import load_settings
from tidemill.spark.target import slots_of

GPU = {"master": "spark://gpu:7077", "config": {"spark.executor.memory": "8g"}, "slots": 16}


def test_clusters_come_from_the_environment_as_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEMILL_SPARK_CLUSTERS", json.dumps({"gpu": GPU}))
    settings = load_settings(root=tmp_path, spark_master="local[3]")
    target = settings.spark_target("gpu")
    assert (target.master, target.slots) == ("spark://gpu:7077", 16)
    assert target.config == {"spark.executor.memory": "8g"}
    assert settings.clusters().slots("gpu") == 16
    assert settings.clusters().slots("default") == 3


def test_the_cluster_nobody_names_is_that_of_spark_master() -> None:
    settings = load_settings(
        spark_master="spark://h:7077", spark_slots=4, spark_config={"spark.cores.max": "4"}
    )
    assert settings.spark_target() == settings.spark_target("default")
    assert settings.spark_target().master == "spark://h:7077"
    assert settings.spark_target().config == {"spark.cores.max": "4"}
    assert settings.clusters().slots(None) == 4


@pytest.mark.parametrize(
    ("master", "slots"),
    [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("spark://h:7077", None), ("yarn", None)],
)
def test_a_local_master_says_how_many_tasks_it_runs(master: str, slots: int | None) -> None:
    assert slots_of(master) == slots


def test_a_local_master_may_use_the_cores_of_its_process() -> None:
    assert slots_of("local[*]") == slots_of("local[*,2]")
    assert 1 <= (slots_of("local[*]") or 0) <= (os.cpu_count() or 1)


def test_slots_that_are_given_win() -> None:
    assert load_settings(spark_master="local[2]", spark_slots=7).clusters().slots(None) == 7


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[4]", "spark://h:7077", "sc://h:15002", "yarn", "k8s://https://h:6443"],
)
def test_masters_of_every_kind_are_accepted(master: str) -> None:
    assert load_settings(spark_master=master, spark_slots=2).spark_target().master == master


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"": GPU}, "spark_clusters: contains a cluster without a name"),
        ({" ": GPU}, "spark_clusters: contains a cluster without a name"),
        ({"default": GPU}, "spark_clusters: 'default' is reserved for the cluster of spark_master"),
        ({"gpu": {**GPU, "mastr": "x"}}, "spark_clusters.gpu.mastr"),
        ({"gpu": {"slots": 1}}, "spark_clusters.gpu.master"),
        ({"gpu": {**GPU, "slots": 0}}, "spark_clusters.gpu.slots"),
        ({"gpu": {**GPU, "master": "mesos://h"}}, "spark_clusters.gpu.master: 'mesos://h' is not local"),
        ({"gpu": {**GPU, "master": "spark://"}}, "spark_clusters.gpu.master: 'spark://' is not local"),
        ({"gpu": {"master": "sc://h:15002"}}, "spark_clusters.gpu.slots: is required"),
    ],
)
def test_nonsense_is_refused_with_its_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_settings(spark_clusters=given)
    assert str(refused.value).startswith(field)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"spark_master": "local[many]"}, "spark_master"),
        ({"spark_master": "local[0]"}, "spark_master"),
        ({"spark_master": "yarn"}, "spark_slots"),
    ],
)
def test_nonsense_about_the_default_cluster_is_refused_with_its_field(
    given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_settings(**given)
    assert refused.value.field == field


def test_a_worker_cannot_serve_a_cluster_that_is_not_configured() -> None:
    with pytest.raises(InvalidInput, match="no cluster 'tpu'; configured are: default, gpu"):
        load_settings(spark_clusters={"gpu": GPU}, cluster="tpu")
