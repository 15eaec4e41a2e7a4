// Package greeterpb is generated from greeter.proto.
//
// To generate it again, have protoc on PATH, or the protoc inside Python's
// grpcio-tools (tests/venv.sh installs it) as in the line below, with
// protoc-gen-go v1.36.12 and protoc-gen-go-grpc v1.6.2.
package greeterpb

//go:generate python3 -m grpc_tools.protoc -I. --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative greeter.proto
