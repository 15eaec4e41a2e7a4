//go:build linux && (amd64 || arm64)

// The runtime would keep the files of its cgroup open, and the descriptors are part of the report.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command probe is the guest of the conformance suite: it looks around and tells the harness what it sees.
//
// It needs nothing of its surroundings: no library, no /proc, no argument, no variable. See package wire for
// how it finds the harness. Build it with CGO_ENABLED=0 and -ldflags "-E main.entry".
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/tests/conformance/internal/wire"
)

func init() {
	// Signal masks, capabilities and the parent-death signal belong to threads: stay on the one that was
	// started by exec.
	runtime.LockOSThread()
}

func main() {
	fds := openFDs() // first of all, before anything here opens one
	harness, err := findHarness(fds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(99)
	}
	question, err := readQuestion(harness)
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(99)
	}
	answer := look(question)
	answer.FDs = fds

	line, err := json.Marshal(answer)
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(99)
	}
	write(harness, []byte(wire.Hello))
	write(harness, append(line, '\n'))
	for {
		var request [1]byte
		n, err := unix.Read(harness, request[:])
		switch {
		case err == unix.EINTR:
		case err != nil || n == 0 || request[0] == wire.Quit:
			os.Exit(question.Exit)
		default:
			write(harness, request[:])
		}
	}
}

// findHarness returns the descriptor on which a question waits.
func findHarness(fds map[int]wire.FD) (int, error) {
	head := make([]byte, len(wire.Magic))
	for fd := range fds {
		n, _, err := unix.Recvfrom(fd, head, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err == nil && string(head[:n]) == wire.Magic {
			return fd, nil
		}
	}
	return -1, fmt.Errorf("no question on any descriptor of %v", fds)
}

func readQuestion(fd int) (q wire.Question, err error) {
	var line []byte
	chunk := make([]byte, 4096)
	for !bytes.HasSuffix(line, []byte("\n")) {
		n, err := unix.Read(fd, chunk)
		if err != nil || n == 0 {
			return q, fmt.Errorf("the question ended early (%v)", err)
		}
		line = append(line, chunk[:n]...)
	}
	return q, json.Unmarshal(line, &q)
}

func write(fd int, data []byte) {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			os.Exit(98)
		}
		data = data[n:]
	}
}
