# SPDX-License-Identifier: Apache-2.0
"""Reads deploy/kubernetes as kustomize does, and says what does not fit together.

kubernetes_manifests.py FOLDER CHECK            names | addresses | workers | ports | limits | confined |
                                                 exit_codes UNIT | gpu | schema VERSION | kustomize PROGRAM ...
kubernetes_manifests.py FOLDER pod NAME ROOT CLAIMS [FROM=TO ...]
    lays out in ROOT the files of a pod, as a node does, and prints its working folder, then its command, a word per
    line. In all of that a volume's path becomes the folder in its place, a claim's CLAIMS/NAME, and FROM becomes TO.

Exits with 2 where something does not fit, which it says.
"""
import base64
import os
import re
import subprocess
import sys

import yaml

wrong = []


def expect(good, *what):
    if not good:
        wrong.append(" ".join(str(w) for w in what))


# ---- kustomize ------------------------------------------------------------------------------------------------------


def documents(text):
    return [d for d in yaml.safe_load_all(text) if d]


def read(path, mode="r"):
    with open(path, mode) as file:
        return file.read()


def files_of(generator, folder):
    return {os.path.basename(f): read(f"{folder}/{f}", "rb") for f in generator["files"]}


def generated(k, folder):
    for g in k.pop("configMapGenerator", []):
        data = {name: text.decode() for name, text in files_of(g, folder).items()}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": g["name"]}, "data": data}
    for g in k.pop("secretGenerator", []):
        data = {name: base64.b64encode(text).decode() for name, text in files_of(g, folder).items()}
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": g["name"]}, "type": "Opaque", "data": data}


def add(to, path, value):
    *parents, last = [p.replace("~1", "/") for p in path.lstrip("/").split("/")]
    for p in parents:
        to = to[int(p)] if isinstance(to, list) else to[p]
    if last == "-":
        to.append(value)
    else:
        to[last] = value


def patched(objects, patch):
    target = [o for o in objects if patch["target"] == {"kind": o["kind"], "name": name_of(o)}]
    expect(len(target) == 1, "a patch is of", patch["target"], "of which there are", len(target))
    for operation in yaml.safe_load(patch["patch"]):
        assert operation["op"] in ("add", "replace"), "this test knows no other patches"
        for o in target:
            add(o, operation["path"], operation["value"])


def name_of(o):
    return o["metadata"]["name"]


def build(folder):
    k = yaml.safe_load(read(f"{folder}/kustomization.yaml"))
    objects = []
    for r in k.pop("resources"):
        path = f"{folder}/{r}"
        objects += build(path) if os.path.isdir(path) else documents(read(path))
    objects += generated(k, folder)
    # A pod that is there by a name with a hash is started anew whenever a file changes, and a Job refuses it.
    plain = {"disableNameSuffixHash": True}
    expect(k.pop("generatorOptions", plain) == plain, "names have hashes")
    for patch in k.pop("patches", []):
        patched(objects, patch)
    images = {i["name"]: f"{i['newName']}:{i['newTag']}" for i in k.pop("images", [])}
    namespace = k.pop("namespace", None)
    for o in objects:
        if namespace and o["kind"] != "Namespace":
            o["metadata"]["namespace"] = namespace
        for c in pod_of(o)["containers"] if pod_of(o) else []:
            c["image"] = images.get(c["image"], c["image"])
    expect(set(k) == {"apiVersion", "kind"}, folder, "says what this test does not know:", set(k))
    return objects


# ---- what is in it --------------------------------------------------------------------------------------------------


def pod_of(o):
    if o["kind"] == "Pod":
        return o["spec"]
    return o.get("spec", {}).get("template", {}).get("spec") if o["kind"] in ("StatefulSet", "Job") else None


def beside(folder):
    """What is applied by itself."""
    return documents(read(f"{folder}/files.yaml")) if os.path.exists(f"{folder}/files.yaml") else []


class Cluster:
    def __init__(self, folder):
        self.objects = build(folder)
        self.psd, self.job = self.the("StatefulSet", "psd"), self.the("Job", "worker")
        self.file = yaml.safe_load(self.the("ConfigMap", "cluster")["data"]["cluster.yaml"])

    def the(self, kind, name):
        found = [o for o in self.objects if (o["kind"], name_of(o)) == (kind, name)]
        expect(len(found) == 1, f"there are {len(found)} of {kind} {name}")
        return found[0] if found else {"data": {}, "metadata": {"labels": {}}, "spec": {}}

    def pods(self):
        return [(o, pod_of(o)) for o in self.objects if pod_of(o)]


def container(o):
    return pod_of(o)["containers"][0]


def sources(volume):
    """(kind, name, items) of what a volume is made of."""
    for s in volume.get("projected", {}).get("sources", [volume]):
        if "configMap" in s:
            yield "ConfigMap", s["configMap"]["name"], s["configMap"].get("items")
        elif "secret" in s:
            yield "Secret", s["secret"].get("name") or s["secret"]["secretName"], s["secret"].get("items")
        elif "persistentVolumeClaim" in s:
            yield "PersistentVolumeClaim", s["persistentVolumeClaim"]["claimName"], None
        else:
            expect(False, "a volume of a kind that this test does not know:", volume)


def option(o, name):
    found = [a.split("=", 1)[1] for a in container(o)["args"] if a.startswith(f"--{name}=")]
    expect(len(found) == 1, name_of(o), f"has --{name}", len(found), "times")
    return found[0] if found else ""


# ---- checks ---------------------------------------------------------------------------------------------------------


def check_volumes(c, used):
    for o, pod in c.pods():
        volumes = {v["name"]: v for v in pod["volumes"]}
        mounted = {m["name"] for x in pod["containers"] for m in x["volumeMounts"]}
        expect(set(volumes) == mounted, name_of(o), "has volumes", set(volumes), "and mounts", mounted)
        for kind, name, items in (s for v in volumes.values() for s in sources(v)):
            data = c.the(kind, name).get("data", {})
            used.add((kind, name))
            for item in items or []:
                expect(item["key"] in data, kind, name, "has no", item["key"])


def check_selectors(c):
    labels = {name_of(o): o["spec"]["template"]["metadata"]["labels"] for o in (c.psd, c.job)}
    expect(labels["psd"] != labels["worker"], "both have the labels", labels["psd"])
    for o in c.objects:
        spec = o.get("spec", {})
        selector = spec.get("podSelector", spec.get("selector"))
        if selector is not None:
            selector = selector.get("matchLabels", selector)
            expect(selector == labels[name_of(o)], o["kind"], name_of(o), "selects", selector)
    for o in (c.psd, c.job):
        for spread in pod_of(o)["topologySpreadConstraints"]:
            expect(spread["labelSelector"]["matchLabels"] == labels[name_of(o)], name_of(o), "spreads others")


def names(c, folder):
    used = set()
    check_volumes(c, used)
    check_selectors(c)
    for o in c.objects:
        if o["kind"] in ("ConfigMap", "Secret", "PersistentVolumeClaim"):
            expect((o["kind"], name_of(o)) in used, "nothing uses", o["kind"], name_of(o))
    service = c.the("Service", c.psd["spec"]["serviceName"])
    expect(service["spec"].get("clusterIP") == "None", "the Service of a StatefulSet has no address of its own")
    expect(service["spec"].get("publishNotReadyAddresses"), "names are there before pods are ready")
    for rule in c.job["spec"]["podFailurePolicy"]["rules"]:
        name = rule.get("onExitCodes", {}).get("containerName", container(c.job)["name"])
        expect(name == container(c.job)["name"], "podFailurePolicy is of container", name)
    space = [name_of(o) for o in c.objects if o["kind"] == "Namespace"]
    for o in c.objects + beside(folder):
        expect(o["kind"] == "Namespace" or [o["metadata"].get("namespace")] == space, name_of(o), "is not in", space)
    for v in (v for o in beside(folder) for v in pod_of(o)["volumes"]):
        for kind, name, _ in sources(v):
            expect((kind, name) in used, "files.yaml has", kind, name)


def addresses(c):
    port = option(c.psd, "listen").rsplit(":", 1)[1]
    name, service, n = name_of(c.psd), c.psd["spec"]["serviceName"], c.psd["spec"]["replicas"]
    pods = [f"{name}-{i}.{service}:{port}" for i in range(n)]
    expect(c.file["ps"] == pods, "cluster.yaml has", c.file["ps"], "and the pods are", pods)
    for o in (c.psd, c.job):
        mounts = [m["mountPath"] for m in container(o)["volumeMounts"]]
        for a in container(o)["args"]:
            path = re.search(r"=(/.*)", a)
            expect(not path or any(path[1].startswith(m + "/") for m in mounts), a, "is on none of", mounts)


def workers(c):
    spec = c.job["spec"]
    n = spec["completions"]
    expect(spec["completionMode"] == "Indexed", "ranks are indices")
    expect(spec["parallelism"] == n, n, "workers, of which", spec["parallelism"], "run at a time")
    listed = [f"{name_of(c.job)}-{i}" for i in range(n)]
    expect(c.file["worker"] == listed, "cluster.yaml has", c.file["worker"], "and the pods are", listed)
    expect("$(JOB_COMPLETION_INDEX)" == option(c.job, "rank"), "--rank is", option(c.job, "rank"))
    expect("$(TASK)" == option(c.psd, "task"), "--task is", option(c.psd, "task"))
    task = [e["valueFrom"]["fieldRef"]["fieldPath"] for e in container(c.psd)["env"] if e["name"] == "TASK"]
    expect(task == ["metadata.labels['apps.kubernetes.io/pod-index']"], "TASK is", task)


def ports(c):
    has = {p["name"]: p["containerPort"] for p in container(c.psd)["ports"]}
    said = {"grpc": option(c.psd, "listen"), "http": option(c.psd, "http")}
    said = {name: int(address.rsplit(":", 1)[1]) for name, address in said.items()}
    expect(has == said, "psd listens on", said, "and its ports are", has)
    for p in c.the("Service", "psd")["spec"]["ports"]:
        expect(has.get(p["targetPort"]) == p["port"], "Service psd has", p)
    for probe, path in (("startup", "/healthz"), ("liveness", "/healthz"), ("readiness", "/readyz")):
        get = container(c.psd)[f"{probe}Probe"]["httpGet"]
        expect(get == {"path": path, "port": "http"}, probe, "probe is", get)
    annotations = c.psd["spec"]["template"]["metadata"]["annotations"]
    scraped = annotations["prometheus.io/port"]
    expect(scraped == str(has["http"]), "Prometheus scrapes", scraped)
    rules = c.the("NetworkPolicy", "psd")["spec"]["ingress"]
    admitted = {p["port"]: r["from"] for r in rules for p in r["ports"]}
    expect(set(admitted) == set(has.values()), "NetworkPolicy psd is of ports", set(admitted))
    own = [{"podSelector": {}}]
    expect(admitted.get(has["grpc"]) == own, "NetworkPolicy psd lets in", admitted.get(has["grpc"]))
    expect("ingress" not in c.the("NetworkPolicy", "worker")["spec"], "somebody may connect to workers")


def limits(c):
    for o in (c.psd, c.job):
        r = container(o)["resources"]
        expect(r["limits"]["memory"] == r["requests"]["memory"], name_of(o), "has other memory than it requests")
        expect(pod_of(o)["terminationGracePeriodSeconds"] == 30, name_of(o), "has another time to end")
    job = yaml.safe_load(c.the("ConfigMap", "job")["data"]["job.yaml"])
    cpus = container(c.job)["resources"]["requests"]["cpu"]
    expect(str(job["threads"]) == cpus, "a worker has", job["threads"], "threads and", cpus, "CPUs")
    shared = [m["mountPath"] + "/" for m in container(c.job)["volumeMounts"] if m["name"] == "data"]
    for path in [job["output"]] + [b["path"] for b in job["callbacks"]]:
        expect(path.startswith(tuple(shared)), path, "is not on the volume", shared)


def confined(c, folder):
    """What the level restricted of the Pod Security Standards asks for, and more."""
    for o, pod in c.pods() + [(o, pod_of(o)) for o in beside(folder)]:
        s, x = pod["securityContext"], pod["containers"][0]
        expect(s["runAsNonRoot"] and s["runAsUser"] == s["runAsGroup"] == s["fsGroup"] == 7070, name_of(o), "runs as", s)
        expect(s["seccompProfile"] == {"type": "RuntimeDefault"}, name_of(o), "has another seccomp profile")
        drop = {"capabilities": {"drop": ["ALL"]}}
        within = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, **drop}
        expect(x["securityContext"] == within, name_of(o), "has", x["securityContext"])
        expect(len(pod["containers"]) == 1, name_of(o), "has containers that nothing looks at")
        expect(pod["automountServiceAccountToken"] is False, name_of(o), "has a token")
        for v in pod["volumes"]:
            keys = any(kind == "Secret" for kind, _, _ in sources(v))
            mode = v.get("projected", {}).get("defaultMode", 0o644)
            expect(not keys or mode == 0o440, name_of(o), f"has keys of mode {mode:o}, which every user can read")


def exit_codes(c, unit):
    never = re.search(r"^RestartPreventExitStatus=(.*)$", read(unit), re.M)[1].split()
    rules = c.job["spec"]["podFailurePolicy"]["rules"]
    fail = [r["onExitCodes"] for r in rules if r["action"] == "FailJob"]
    expect([r["values"] for r in fail] == [[int(n) for n in never]], "other codes than systemd's:", fail)
    expect(all(r["operator"] == "In" for r in fail), "the codes are those that fail")
    expect(rules[0]["action"] == "Ignore", "a disruption is looked at first")
    expect(pod_of(c.job)["restartPolicy"] == "Never", "podFailurePolicy needs restartPolicy Never")


def gpu(c):
    limit = container(c.job)["resources"]["limits"].get("nvidia.com/gpu")
    expect(limit == 1, "a worker has", limit, "GPUs")
    expect(option(c.job, "set") == "device=gpu", "workerd does not use it")
    memory = container(c.job)["resources"]["limits"]["memory"]
    expect(memory == "4Gi", "a worker with a GPU has", memory, "of memory, in which CUDA and its libraries do not fit")


def schema(c, folder, version):
    import kubernetes_validate as k
    for o in c.objects + beside(folder):
        try:
            k.validate(o, version, strict=True)
        except k.ValidationError as e:
            expect(False, o["kind"], name_of(o), e.message)


def kustomize(c, folder, *program):
    said = documents(subprocess.run([*program, folder], check=True, capture_output=True, text=True).stdout)
    for o in said:
        if o["kind"] == "Secret":
            o["data"] = {name: re.sub(r"\s", "", text) for name, text in o["data"].items()}
    theirs, ours = ({(o["kind"], name_of(o)): o for o in objects} for objects in (said, c.objects))
    expect(set(theirs) == set(ours), "kustomize and this test differ in", set(theirs) ^ set(ours))
    for key in set(theirs) & set(ours):
        parts = [part for part in theirs[key] if theirs[key][part] != ours[key].get(part)]
        expect(theirs[key] == ours[key], *key, "has other", parts)


# ---- a pod without a node -------------------------------------------------------------------------------------------


def lay(c, volume, place, replaced):
    """The files of a volume, behind links as a node makes them."""
    os.makedirs(f"{place}/..1")
    os.symlink("..1", f"{place}/..data")
    mode = volume.get("projected", {}).get("defaultMode", 0o644)
    for kind, name, items in sources(volume):
        data = c.the(kind, name)["data"]
        for item in items or [{"key": k, "path": k} for k in data]:
            text = data[item["key"]]
            text = base64.b64decode(text) if kind == "Secret" else replaced(text).encode()
            path = f"{place}/..1/{item['path']}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(text)
            os.chmod(path, mode)
            top = item["path"].split("/")[0]
            if not os.path.lexists(f"{place}/{top}"):
                os.symlink(f"..data/{top}", f"{place}/{top}")


def pod(c, name, root, claims, *pairs):
    owner, index = name.rsplit("-", 1)
    o = c.psd if owner == name_of(c.psd) else c.job
    places = dict(p.split("=", 1) for p in pairs)
    for m in container(o)["volumeMounts"]:
        volume = next(v for v in pod_of(o)["volumes"] if v["name"] == m["name"])
        claim = volume.get("persistentVolumeClaim")
        places[m["mountPath"]] = f"{claims}/{claim['claimName']}" if claim else f"{root}{m['mountPath']}"

    def replaced(text):
        pattern = r"(?<![\w.])(" + "|".join(re.escape(p) for p in places) + r")(?![\w.-])"
        return re.sub(pattern, lambda found: places[found[0]], text)

    for m in container(o)["volumeMounts"]:
        volume = next(v for v in pod_of(o)["volumes"] if v["name"] == m["name"])
        if "persistentVolumeClaim" in volume:
            os.makedirs(places[m["mountPath"]], exist_ok=True)
        else:
            lay(c, volume, places[m["mountPath"]], replaced)
    print(replaced(container(o).get("workingDir", "/")))
    for word in container(o)["command"] + container(o)["args"]:
        print(replaced(re.sub(r"\$\((TASK|JOB_COMPLETION_INDEX)\)", index, word)))


def main(folder, what, *rest):
    c = Cluster(folder)
    if what in ("names", "confined", "schema", "kustomize"):
        rest = (folder, *rest)
    does = (names, addresses, workers, ports, limits, confined, exit_codes, gpu, schema, kustomize, pod)
    {f.__name__: f for f in does}[what](c, *rest)
    for w in wrong:
        print(w, file=sys.stderr)
    return 2 if wrong else 0


sys.exit(main(*sys.argv[1:]))
