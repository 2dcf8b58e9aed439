from uniq_rl.training import records


def test_a_copy_without_history_names_its_commit_by_the_environment(monkeypatch):
    monkeypatch.setenv("UNIQ_RL_COMMIT", "0123abc")
    assert records.commit() == "0123abc"
