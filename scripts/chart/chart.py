"""Lints, renders and validates the chart with Helm's own code, without a cluster.

Usage: chart.py render CHART OUT        every set of values below, to OUT/<set>.yaml and .json
       chart.py one CHART VALUES        one render of the values in a JSON file, as JSON
       chart.py refuse CHART CASES      what Helm says to each case of a JSON file {name: values}
       chart.py validate VERSION FILE…  renders against the schemas of a Kubernetes release
       chart.py json FILE               a YAML file as JSON

Objects of other projects (Gateway API, Prometheus operator, cert-manager) have no schema here;
their kinds are printed, and the tests look at them one by one.
"""

import functools
import json
import pathlib
import sys

import helm_python
import yaml
from kubernetes_validate import utils as kubernetes

NAME, NAMESPACE = "adsum", "presence"
# Each is laid over the one before it, as `helm -f a -f b` does.
SETS = {
    "default": [],
    "minimal": ["ci/minimal-values.yaml"],
    "quickstart": ["values-quickstart.yaml"],
    "production": ["values-production.yaml", "ci/production-values.yaml"],
    "everything": ["ci/everything-values.yaml"],
}


def lay(below, above):
    both = dict(below)
    for key, value in above.items():
        nested = isinstance(value, dict) and isinstance(both.get(key), dict)
        both[key] = lay(both[key], value) if nested else value
    return both


def values_of(chart, files):
    values = {}
    for file in files:
        values = lay(values, yaml.safe_load((chart / file).read_text()) or {})
    return values


def rendered(chart, values):
    """The objects, and the notes for people."""
    parts = helm_python.Chart.load(chart).render(
        values, name=NAME, namespace=NAMESPACE, is_install=True
    )
    objects, notes = [], ""
    for path, text in sorted(parts.items()):
        if path.endswith("NOTES.txt"):
            notes = text
        else:
            objects += [item for item in yaml.safe_load_all(text) if item]
    return {"objects": objects, "notes": notes}


def render(chart, out):
    problems = []
    for name, files in SETS.items():
        values = values_of(chart, files)
        report = helm_python.lint(chart, values, strict=True, namespace=NAMESPACE)
        problems += [f"{name}: {found}" for found in report["messages"] + report["errors"]]
        made = rendered(chart, values)
        (out / f"{name}.yaml").write_text(yaml.safe_dump_all(made["objects"], sort_keys=False))
        (out / f"{name}.json").write_text(json.dumps(made))
        print(f"{name}: {len(made['objects'])} objects")
    for problem in problems:
        print(f"lint: {problem}", file=sys.stderr)
    return bool(problems)


def refuse(chart, cases):
    said = {}
    for name, values in json.loads(cases.read_text()).items():
        files = values.pop("files", [])
        try:
            rendered(chart, lay(values_of(chart, files), values))
            said[name] = None
        except helm_python.HelmError as error:
            said[name] = str(error)
    print(json.dumps(said))
    return False


def validate(version, files):
    # Schemas are large, and every object asks for all of them.
    kubernetes.schema_contents = functools.lru_cache(None)(kubernetes.schema_contents)
    failed, checked, unknown = False, 0, set()
    for file in files:
        for item in yaml.safe_load_all(file.read_text()):
            where = f"{file.stem} {item['kind']}/{item['metadata']['name']}"
            try:
                kubernetes.validate(item, version, strict=True)
                checked += 1
            except kubernetes.SchemaNotFoundError:
                unknown.add(item["kind"])
            except kubernetes.ValidationError as error:
                path = ".".join(map(str, error.path))
                print(f"{where}, Kubernetes {version}: {path}: {error.message}", file=sys.stderr)
                failed = True
    print(json.dumps({"checked": checked, "unknown": sorted(unknown)}))
    return failed


def main():
    command, *rest = sys.argv[1:]
    paths = [pathlib.Path(word) for word in rest]
    if command == "render":
        return render(*paths)
    if command == "one":
        values = json.loads(paths[1].read_text())
        files = values.pop("files", [])
        print(json.dumps(rendered(paths[0], lay(values_of(paths[0], files), values))))
        return False
    if command == "refuse":
        return refuse(*paths)
    if command == "validate":
        return validate(rest[0], paths[1:])
    if command == "json":
        print(json.dumps(yaml.safe_load(paths[0].read_text())))
        return False
    print(__doc__, file=sys.stderr)
    return True


sys.exit(main())
