# deploy
EXTRA_DIST += \
	deploy/examples/conv/model.json \
	deploy/examples/linear/model.json \
	deploy/examples/mnist-cnn/model.json \
	deploy/examples/softmax/model.json
