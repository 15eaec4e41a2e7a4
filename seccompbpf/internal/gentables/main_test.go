package main

import (
	"bytes"
	"os"
	"testing"
)

func TestCommittedTablesMatchGenerator(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../ztables.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("ztables.go is out of date: run go generate ./seccompbpf")
	}
}
