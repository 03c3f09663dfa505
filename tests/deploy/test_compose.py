"""The compose file: valid by the published schema, hardened, closed to the outside, and of one mind with its files."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from proxy.config import Config
from tests.deploy.manifests import COMPOSE, Json, configuration, documents, seconds
from tests.process.harness import started

(FILE,) = documents(COMPOSE / "compose.yaml")
SERVICES: dict[str, Json] = FILE["services"]
PROXIES = ["proxy-1", "proxy-2"]
SERVERS = ["a", "b", "c"]
ENVIRON = {"MCP_ROUTING_PROXY_TOKEN": "made-up", "REDIS_URL": "redis://redis:6379/0"}


@pytest.fixture(scope="module")
def config() -> Config:
    return configuration(COMPOSE / "proxy" / "proxy.yaml", ENVIRON)


@pytest.fixture(scope="module")
def schema() -> Json:
    """compose-spec's own, as check-jsonschema carries it."""
    package = importlib.util.find_spec("check_jsonschema")
    if package is None or package.origin is None:
        pytest.skip("PyPI's check-jsonschema is not installed")
    file = Path(package.origin).with_name("builtin_schemas") / "vendor" / "compose-spec.json"
    read: Json = json.loads(file.read_text())
    return read


def networks(service: Json) -> set[str]:
    return set(service["networks"])


# ---- the file
def test_the_published_schema_allows_it(schema: Json) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(FILE, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"services": {"a": {"image": "x", "read_onyl": True}}}, schema)


def sources() -> list[str]:
    """What is mounted from the project, or built from it."""
    mounted = [entry.split(":")[0] for service in SERVICES.values() for entry in service.get("volumes", ())]
    built = [service["build"]["context"] for service in SERVICES.values() if "build" in service]
    return sorted({source for source in mounted + built if source.startswith(".")})


@pytest.mark.parametrize("source", sources())
def test_what_is_mounted_is_there(source: str) -> None:
    assert (COMPOSE / source).exists()


def test_named_volumes_and_networks_are_declared() -> None:
    used = {entry.split(":")[0] for service in SERVICES.values() for entry in service.get("volumes", ())}
    assert {name for name in used if not name.startswith(".")} == FILE["volumes"].keys()
    assert set.union(*map(networks, SERVICES.values())) == FILE["networks"].keys()
    waited_for = {name for service in SERVICES.values() for name in service.get("depends_on", ())}
    assert waited_for <= SERVICES.keys()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_do_no_more_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service and "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
    assert "healthcheck" in service or name in PROXIES  # theirs is in the image


# ---- who reaches whom
def test_everything_is_published_on_loopback_alone() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(published) == 5
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published)


def test_only_who_is_published_has_a_way_out() -> None:
    assert {name for name, network in FILE["networks"].items() if not (network or {}).get("internal")} == {"outside"}
    outside = {name for name, service in SERVICES.items() if "outside" in networks(service)}
    assert outside == {name for name, service in SERVICES.items() if "ports" in service}


def test_backends_and_redis_meet_nobody_but_proxies() -> None:
    for network, behind in (("backends", SERVERS), ("state", ["redis"])):
        assert {name for name, service in SERVICES.items() if network in networks(service)} == {*PROXIES, *behind}
        assert all(networks(SERVICES[name]) == {network} for name in behind)


# ---- the proxies
@pytest.mark.parametrize("name", PROXIES)
def test_a_proxy_is_what_its_configuration_says(name: str, config: Config) -> None:
    service = SERVICES[name]
    assert sorted(port.split(":")[2] for port in service["ports"]) == sorted(
        map(str, (config.listen.port, config.admin.port))
    )
    assert (config.listen.host, config.admin.host) == ("0.0.0.0", "0.0.0.0")
    assert config.admin.token == ENVIRON["MCP_ROUTING_PROXY_TOKEN"]
    assert service["environment"].keys() == ENVIRON.keys()
    assert service["environment"]["MCP_ROUTING_PROXY_TOKEN"].startswith("${MCP_ROUTING_PROXY_TOKEN:?")
    assert service["environment"]["REDIS_URL"] == config.pins.url == ENVIRON["REDIS_URL"]
    (mount,) = service["volumes"]
    source, target, mode = mount.split(":")
    assert (COMPOSE / source).is_dir() and mode == "ro"  # a folder: a mounted file would never change
    assert service["command"] == ["serve", "--watch", "-c", f"{target}/proxy.yaml"]


@pytest.mark.parametrize("name", PROXIES)
def test_there_is_time_to_drain(name: str, config: Config) -> None:
    assert seconds(SERVICES[name]["stop_grace_period"]) >= config.drain + 5


def test_redis_is_bounded_and_drops_pins_alone() -> None:
    command = SERVICES["redis"]["command"]
    given = dict(zip(command[1::2], command[2::2], strict=True))
    assert given["--maxmemory-policy"] == "volatile-lru"
    assert int(given["--maxmemory"].removesuffix("mb")) < int(
        SERVICES["redis"]["deploy"]["resources"]["limits"]["memory"].removesuffix("M")
    )


# ---- the demo's servers
def test_backends_are_services(config: Config) -> None:
    backends = config.pools["agents"].backends
    assert [backend.id for backend in backends] == SERVERS
    for backend in backends:
        entrypoint, command = SERVICES[backend.id]["entrypoint"], SERVICES[backend.id]["command"]
        assert (backend.host, str(backend.port)) == (backend.id, entrypoint[entrypoint.index("--port") + 1])
        assert command == ["--instance", backend.id]


async def test_a_server_starts_and_its_health_check_tells(config: Config) -> None:
    service = SERVICES["a"]
    port_at = service["entrypoint"].index("--port") + 1
    program = [*service["entrypoint"][:port_at], "0", *service["entrypoint"][port_at + 1 :], *service["command"]]
    assert program[0] == "python"
    with started(program=[sys.executable, *program[1:]]) as command:
        port = int((await command.wrote(r"(\d+)\n"))[1])
        health = config.pools["agents"].health
        assert health is not None
        # Not the loopback address that it listens on by default.
        url = f"http://127.0.0.2:{port}{health.path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert response.status == 200
        assert health_check(service, port) == 0
        command.terminate()
        assert await command.ended() == 0
    assert health_check(service, port) != 0


def health_check(service: Json, port: int) -> int:
    kind, python, *arguments = service["healthcheck"]["test"]
    assert (kind, python) == ("CMD", "python")
    command = [sys.executable, *(argument.replace("8000", str(port)) for argument in arguments)]
    return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode


# ---- Prometheus and Grafana
def test_prometheus_asks_every_proxy_by_address(config: Config) -> None:
    """By name they would answer 421."""
    (settings,) = documents(COMPOSE / "prometheus.yml")
    (job,) = settings["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert found["type"] == "A"
    assert found["port"] == config.admin.port
    (name,) = found["names"]
    for proxy in PROXIES:
        (shared,) = networks(SERVICES[proxy]) & networks(SERVICES["prometheus"])
        assert SERVICES[proxy]["networks"][shared]["aliases"] == [name]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: Debian's prometheus would do")
def test_promtool_reads_the_configuration(tmp_path: Path) -> None:
    for entry in SERVICES["prometheus"]["volumes"]:
        source, target, *_ = entry.split(":")
        if source.startswith("."):
            (tmp_path / target.rpartition("/")[2]).write_bytes((COMPOSE / source).read_bytes())
    checked = subprocess.run(
        ["promtool", "check", "config", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "1 rule files" in checked.stdout


def test_grafana_finds_its_source_and_its_dashboard() -> None:
    (sources,) = documents(COMPOSE / "grafana-datasource.yaml")
    (source,) = sources["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert networks(SERVICES["prometheus"]) <= networks(SERVICES["grafana"])
    (providers,) = documents(COMPOSE / "grafana-dashboards.yaml")
    (provider,) = providers["providers"]
    targets = dict(entry.split(":")[:2] for entry in SERVICES["grafana"]["volumes"])
    assert targets["../grafana/dashboard.json"].startswith(provider["options"]["path"] + "/")
    assert targets["./grafana-datasource.yaml"].startswith("/etc/grafana/provisioning/datasources/")
    assert targets["./grafana-dashboards.yaml"].startswith("/etc/grafana/provisioning/dashboards/")
