# The go command, and a program with goroutines, processes and a server. Prints what it prints.
set -euo pipefail
cd "$(mktemp -d)"
cat >go.mod <<'M'
module everyday
go 1.24
M
cat >main.go <<'G'
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
)

func main() {
	out, err := exec.Command("echo", "hi").Output()
	check(err == nil && string(out) == "hi\n", err)

	s := httptest.NewServer(http.FileServerFS(os.DirFS(".")))
	r, err := http.Get(s.URL + "/go.mod")
	check(err == nil && r.StatusCode == 200, err)
	io.Copy(io.Discard, r.Body)

	root, err := os.OpenRoot(".")
	check(err == nil, err)
	f, err := root.Create("x")
	check(err == nil, err)
	check(f.Chmod(0o755) == nil, err)

	_, err = net.Interfaces()
	check(err == nil, err)
	l, err := net.Listen("unix", "s")
	check(err == nil, err)
	l.Close()
	done := make(chan int)
	for range 100 {
		go func() { runtime.LockOSThread(); done <- 1 }()
	}
	for range 100 {
		<-done
	}
	fmt.Println("fine")
}

func check(ok bool, err error) {
	if !ok {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}
G
go run .
