"""Starting: secrets by file, a taken port, an unknown weather, and what the ready line may say."""

from __future__ import annotations

import pytest

from ephemerd.testing.forge_sim.main import Options, StartError, running, serve


async def test_secrets_given_by_file_are_used_and_not_printed(tmp_path):
    token, secret = tmp_path / "token", tmp_path / "secret"
    token.write_text("my-token\n")
    secret.write_text("my-secret\n")
    options = Options(token_file=token, webhook_secret_file=secret, write_runner_dir=tmp_path / "runner")
    async with running(options) as sim:
        assert (sim.token, sim.webhook_secret) == ("my-token", "my-secret")
        line = sim.ready_line()
    assert "my-" not in str(line)
    assert line["runner"] == str(tmp_path / "runner")
    assert (tmp_path / "runner" / "bin" / "Runner.Listener").exists()


async def test_secrets_that_were_drawn_are_printed():
    async with running(Options()) as sim:
        line = sim.ready_line()
        assert (line["token"], line["webhook_secret"]) == (sim.token, sim.webhook_secret)
        assert line["admin"] == sim.url + "/_admin"


@pytest.mark.parametrize("content", [None, "  \n"])
def test_an_unreadable_secret_is_code_4_and_names_its_path(tmp_path, capsys, content):
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    assert serve(Options(token_file=path)) == 4
    assert str(path) in capsys.readouterr().err


def test_an_unknown_weather_is_code_2(capsys):
    assert serve(Options(weather="sunny")) == 2
    assert "calm" in capsys.readouterr().err


async def test_a_taken_port_is_code_5():
    async with running(Options()) as sim:
        port = int(sim.url.rpartition(":")[2])
        with pytest.raises(StartError, match="another port") as caught:
            async with running(Options(port=port)):
                pass
    assert caught.value.code == 5


async def test_a_hook_may_be_given_at_the_start(tmp_path):
    async with running(Options(hook_url="http://127.0.0.1:9/", truth_path=tmp_path / "t.jsonl")) as sim:
        assert [h.url for r in sim.world.repositories.values() for h in r.hooks.values()] == [
            "http://127.0.0.1:9/"
        ]
        assert await sim.truth.wait_until(lambda: sim.truth.records[-1]["kind"] == "delivery_sent", 20)
