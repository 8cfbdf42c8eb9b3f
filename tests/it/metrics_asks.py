# SPDX-License-Identifier: Apache-2.0
"""Asks a Prometheus: metrics_asks.py URL above VALUE QUERY | dashboard FILE | silent | alerts NAME."""
import json
import sys
import urllib.parse
import urllib.request

url = sys.argv[1]


def ask(path, **parameters):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
        return json.load(answer)["data"]


def values(query):
    return [float(sample["value"][1]) for sample in ask("query", query=query)["result"]]


def above(value, query):
    found = values(query)
    print(query, found)
    return any(v > float(value) for v in found)


def dashboard(path):
    with open(path, encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    # What stands behind unless leaves out what another query of the panel has, here all.
    queries = [target["expr"].replace("$job", ".*").split(" unless ")[0] for panel in panels for target in panel["targets"]]
    empty = [query for query in queries if not values(query)]
    print(len(queries), "queries, without data:", empty)
    return len(queries) > 0 and not empty


def alerts():
    return [alert["labels"]["alertname"] for alert in ask("alerts")["alerts"]]


def silent():
    """Once the rules have been looked at, none waits for its time, nor alerts."""
    groups = ask("rules")["groups"]
    looked = [not group["lastEvaluation"].startswith("0001") for group in groups]
    print(looked, alerts())
    return len(looked) > 0 and all(looked) and not alerts()


def is_raised(name):
    print(alerts())
    return name in alerts()


commands = {"above": above, "dashboard": dashboard, "silent": silent, "alerts": is_raised}
try:
    sys.exit(0 if commands[sys.argv[2]](*sys.argv[3:]) else 1)
except OSError as error:  # it has not started yet
    sys.exit(str(error))
