# libclient
