# SPDX-License-Identifier: Apache-2.0
"""FOLDER: fails unless TensorBoard finds scalars, histograms, images and the graph of a softmax regression there."""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.graph_pb2 import GraphDef

folder = sys.argv[1]
runs = {}
for split in ("train", "validation"):
    runs[split] = EventAccumulator(f"{folder}/{split}")
    runs[split].Reload()
    print("#", split, {k: v for k, v in runs[split].Tags().items() if v})

train, validation = runs["train"].Tags(), runs["validation"].Tags()
assert {"epoch_loss", "epoch_accuracy", "batch_loss"} <= set(train["scalars"]), train["scalars"]
assert {"epoch_loss", "epoch_accuracy"} <= set(validation["scalars"]), validation["scalars"]
assert [s.step for s in runs["train"].Scalars("epoch_loss")] == [0, 1]
histograms = [tag for tag in train["histograms"] if tag.endswith("dense/kernel/histogram")]
assert len(histograms) == 1, train["histograms"]
assert runs["train"].Histograms(histograms[0])[0].histogram_value.num == 7840
images = [tag for tag in train["images"] if tag.endswith("dense/kernel/image")]
assert len(images) == 1, train["images"]
image = runs["train"].Images(images[0])[0]
assert (image.width, image.height) == (784, 10), image
assert image.encoded_image_string[:8] == b"\x89PNG\r\n\x1a\n", image.encoded_image_string[:8]
assert train["graph"] is True and validation["graph"] is False

graph = GraphDef()
graph.ParseFromString(runs["train"].Graph().SerializeToString())
nodes = {node.name: node for node in graph.node}
assert nodes["dense"].op == "Dense" and len(nodes["dense"].input) == 1, graph
assert nodes["dense"].input[0] in nodes, graph
sizes = [dim.size for dim in nodes["dense"].attr["_output_shapes"].list.shape[0].dim]
assert sizes == [-1, 10], sizes
assert sum(node.op == "InputLayer" for node in graph.node) == 1, graph
