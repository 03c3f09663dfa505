"""The Kubernetes manifests: valid by the published schemas, hardened, and of one mind with each other and the proxy."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from proxy.config import Config, ConfigError
from proxy.config.values import DnsRecipe
from tests.deploy.manifests import KUBERNETES, Json, configuration, documents, resources
from tests.process.harness import ProxyProcess, proxy_process, started

FOLDERS = [KUBERNETES / name for name in ("proxy", "monitoring", "example")]
CONFIGURATION = KUBERNETES / "proxy" / "proxy.yaml"
SECRETS = {"MCP_ROUTING_PROXY_TOKEN": "made-up", "REDIS_URL": "redis://redis:6379/0"}
PROXY = resources(KUBERNETES / "proxy")
EXAMPLE = resources(KUBERNETES / "example")
DEPLOYMENT = PROXY["Deployment", "mcp-routing-proxy"]
POD = DEPLOYMENT["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]
PODS = {name: found["spec"]["template"] for (kind, name), found in (PROXY | EXAMPLE).items() if kind == "Deployment"}


@pytest.fixture(scope="module")
def config() -> Config:
    return configuration(CONFIGURATION, SECRETS)


def selects(labels: Json, pod: Json) -> bool:
    return bool(labels) and labels.items() <= pod["metadata"]["labels"].items()


def ports_of(pod: Json) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}


# ---- the files
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_kustomization_names_every_file_beside_it(folder: Path) -> None:
    (kustomization,) = documents(folder / "kustomization.yaml")
    named = [*kustomization["resources"]]
    for generator in kustomization.get("configMapGenerator", ()):
        named += generator["files"]
    assert sorted(named) == sorted(file.name for file in folder.iterdir() if file.name != "kustomization.yaml")


# The oldest that has what is used, and one of today.
@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_published_schemas_allow_it(folder: Path, version: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="PyPI's kubernetes-validate is not installed")
    checked = [found for found in resources(folder).values() if "monitoring.coreos.com" not in found["apiVersion"]]
    for found in checked:
        schemas.validate(found, version, strict=True)
    assert checked or folder.name == "monitoring"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kustomize_builds_it(folder: Path) -> None:
    # Some versions ask a server first, if only localhost:8080, where somebody else may listen.
    command = ["kubectl", "--server=http://127.0.0.1:1", "kustomize", str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert built.returncode == 0, built.stderr
    found = list(yaml.safe_load_all(built.stdout))
    assert {one["metadata"].get("namespace", one["metadata"]["name"]) for one in found} == {"mcp"}
    assert "image: mcp-routing-proxy\n" not in built.stdout  # a name without a registry is of no use in a cluster
    if folder.name == "proxy":
        (config_map,) = (one for one in found if one["kind"] == "ConfigMap")
        assert config_map["data"] == {"proxy.yaml": CONFIGURATION.read_text()}
        volume = POD["spec"]["volumes"][0]
        assert config_map["metadata"]["name"] == volume["configMap"]["name"]


# ---- the configuration
def test_the_configuration_is_one(config: Config) -> None:
    assert ports_of(POD) == {"http": config.listen.port, "admin": config.admin.port}
    assert {config.listen.host, config.admin.host} == {"0.0.0.0"}
    assert config.admin.token == SECRETS["MCP_ROUTING_PROXY_TOKEN"]
    assert not config.warnings


def test_its_variables_come_from_the_secret() -> None:
    given = {one["name"]: one["valueFrom"]["secretKeyRef"]["name"] for one in CONTAINER["env"]}
    assert given == dict.fromkeys(SECRETS, "mcp-routing-proxy")
    for name in SECRETS:
        with pytest.raises(ConfigError, match=name):
            configuration(CONFIGURATION, {key: value for key, value in SECRETS.items() if key != name})


def test_a_changed_config_map_reaches_the_proxy() -> None:
    (mount,) = CONTAINER["volumeMounts"]
    assert "subPath" not in mount  # such a mount never changes
    assert CONTAINER["args"] == ["serve", "--watch", "-c", f"{mount['mountPath']}/{CONFIGURATION.name}"]


def test_there_is_time_to_drain(config: Config) -> None:
    pause = CONTAINER["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert POD["spec"]["terminationGracePeriodSeconds"] >= pause + config.drain + 5


def probed() -> list[tuple[str, str]]:
    probes = {kind: CONTAINER[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in probes.values()} == {"admin"}
    return [(kind, probe["path"]) for kind, probe in probes.items()]


async def test_probes_and_scrapes_by_address_are_answered_and_others_are_not() -> None:
    """127.0.0.2 stands for a pod's address: one that the proxy is not told of."""
    settings: Json = yaml.safe_load(CONFIGURATION.read_text())
    settings["listen"]["address"] = settings["admin"]["address"] = "0.0.0.0:0"
    settings["admin"]["token"] = "made-up"
    settings["pools"]["agents"] = {"backends": ["http://127.0.0.1:1/mcp"]}
    settings["pins"] = {"store": "memory"}
    (monitor,) = resources(KUBERNETES / "monitoring").values()
    open_paths = [path for _, path in probed()] + [one["path"] for one in monitor["spec"]["endpoints"]]
    async with proxy_process(yaml.safe_dump(settings)) as proxy:
        for path in open_paths:
            assert await asked(proxy, path) == 200
        assert await asked(proxy, "/api/pools") == 401
        assert await asked(proxy, "/api/pools", Authorization="Bearer made-up") == 200
        assert await asked(proxy, "/metrics", Host="mcp-routing-proxy-admin") == 421


async def asked(proxy: ProxyProcess, path: str, **fields: str) -> int:
    url = f"http://127.0.0.2:{proxy.admin_port}{path}"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        async with session.get(url, headers=fields) as response:
            return response.status


# ---- the pods
@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_a_pod_fulfils_the_restricted_standard(pod: Json) -> None:
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert all(volume.keys() <= {"name", "configMap"} for volume in spec.get("volumes", ()))
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert "readinessProbe" in container


def test_a_replica_is_always_left() -> None:
    spec = DEPLOYMENT["spec"]
    assert spec["replicas"] >= 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    budget = PROXY["PodDisruptionBudget", "mcp-routing-proxy"]["spec"]
    assert budget["maxUnavailable"] < spec["replicas"]
    for rule in (spec, budget, *POD["spec"]["topologySpreadConstraints"]):
        assert selects((rule.get("selector") or rule["labelSelector"])["matchLabels"], POD)
    assert POD["spec"]["serviceAccountName"] == PROXY["ServiceAccount", "mcp-routing-proxy"]["metadata"]["name"]


async def test_a_server_of_the_example_starts_and_is_ready() -> None:
    (server,) = PODS["agents"]["spec"]["containers"]
    (python, *program), arguments = server["command"], server["args"]
    assert python == "python"
    assert arguments[-2:] == ["--port", str(ports_of(PODS["agents"])["mcp"])]
    with started(*arguments[:-1], "0", program=[sys.executable, *program]) as command:
        port = int((await command.wrote(r"(\d+)\n"))[1])
        url = f"http://127.0.0.2:{port}{server['readinessProbe']['httpGet']['path']}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert response.status == 200


# ---- who finds whom
def test_services_lead_to_ports_of_pods() -> None:
    found = [one for (kind, _), one in (PROXY | EXAMPLE).items() if kind == "Service"]
    assert len(found) == 4
    for service in found:
        (pod,) = (pod for pod in PODS.values() if selects(service["spec"]["selector"], pod))
        for port in service["spec"]["ports"]:
            target = port.get("targetPort", port["port"])
            assert target in {*ports_of(pod), *ports_of(pod).values()}


def test_admin_is_not_where_clients_come_in() -> None:
    (port,) = PROXY["Service", "mcp-routing-proxy"]["spec"]["ports"]
    assert port["targetPort"] == "http"


def test_the_service_monitor_finds_the_admin_service_alone() -> None:
    ((name, monitor),) = resources(KUBERNETES / "monitoring").items()
    assert name == ("ServiceMonitor", "mcp-routing-proxy")
    spec = monitor["spec"]
    services = [one for (kind, _), one in (PROXY | EXAMPLE).items() if kind == "Service"]
    found = [service["metadata"] for service in services if selects(spec["selector"]["matchLabels"], service)]
    assert [one["name"] for one in found] == ["mcp-routing-proxy-admin"]
    assert spec["jobLabel"] in found[0]["labels"]
    (endpoint,) = spec["endpoints"]
    (port,) = PROXY["Service", "mcp-routing-proxy-admin"]["spec"]["ports"]
    assert endpoint["port"] == port["name"] == port["targetPort"] == "admin"


def test_the_pool_is_the_headless_service_of_the_example(config: Config) -> None:
    recipe = config.pools["agents"].discover
    assert isinstance(recipe, DnsRecipe)
    service = EXAMPLE["Service", recipe.name]["spec"]
    assert service["clusterIP"] == "None"
    assert [port["port"] for port in service["ports"]] == [recipe.port]
    health, probe = config.pools["agents"].health, PODS[recipe.name]["spec"]["containers"][0]["readinessProbe"]
    assert health is not None and health.path == probe["httpGet"]["path"]


def rules(policy: Json, way: str) -> list[tuple[list[Json], list[Any]]]:
    side = {"ingress": "from", "egress": "to"}[way]
    return [(rule[side], [port["port"] for port in rule["ports"]]) for rule in policy["spec"].get(way, ())]


def test_the_network_lets_the_proxy_reach_what_it_needs_and_nothing_else(config: Config) -> None:
    policy = PROXY["NetworkPolicy", "mcp-routing-proxy"]
    assert selects(policy["spec"]["podSelector"]["matchLabels"], POD)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert [ports for _, ports in rules(policy, "ingress")] == [["http"], ["admin"]]
    dns, *others = rules(policy, "egress")
    assert dns[1] == [53, 53]
    recipe = config.pools["agents"].discover
    assert isinstance(recipe, DnsRecipe)
    reached = {
        name: ports
        for (peer,), ports in others
        for name in PODS
        if selects(peer["podSelector"]["matchLabels"], PODS[name])
    }
    assert reached == {"agents": [recipe.port], "redis": [6379]}


@pytest.mark.parametrize("name", ["agents", "redis"])
def test_only_the_proxy_reaches_what_is_behind_it(name: str) -> None:
    policy = EXAMPLE["NetworkPolicy", name]
    assert selects(policy["spec"]["podSelector"]["matchLabels"], PODS[name])
    (((peer,), (port,)),) = rules(policy, "ingress")
    assert selects(peer["podSelector"]["matchLabels"], POD)
    assert port in ports_of(PODS[name])
    assert rules(policy, "egress") == []
