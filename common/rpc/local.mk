# The gRPC core, wrapped once.
noinst_LTLIBRARIES += libpsrpc.la
libpsrpc_la_SOURCES = \
	common/rpc/address.c common/rpc/address.h \
	common/rpc/buffer.c common/rpc/buffer.h \
	common/rpc/client.c common/rpc/client.h common/rpc/client_inside.h \
	common/rpc/client_call.c common/rpc/client_channel.c common/rpc/client_stream.c common/rpc/client_unary.c \
	common/rpc/credentials.c common/rpc/credentials.h \
	common/rpc/cq.c common/rpc/cq.h \
	common/rpc/method.c common/rpc/method.h \
	common/rpc/server.c common/rpc/server.h common/rpc/server_inside.h \
	common/rpc/server_call.c common/rpc/server_budget.c common/rpc/server_service.c \
	common/rpc/server_stream.c common/rpc/server_unary.c
libpsrpc_la_LIBADD = libpstls.la $(GRPC_LIBS)
