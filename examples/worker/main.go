// Worker is the shape of a service that runs untrusted code: it proves at its
// start that the wall can be built and refuses to serve if it cannot, and it
// passes the SIGTERM of its supervisor on to the guest, which can then clean up.
//
// It exits with 2 if there is no wall, 143 if it was stopped, and otherwise
// with 0 or 1 as the guest did.
//
//	worker [-rootfs DIR] [SCRIPT]
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	postern "github.com/populationgenomics/postern-go"
)

const (
	exitFailed  = 1
	exitNoWall  = 2
	exitStopped = 128 + int(syscall.SIGTERM)
)

func main() { os.Exit(work()) }

func work() int {
	rootfs := flag.String("rootfs", "", "directory with the guest's system, instead of the host's")
	flag.Parse()
	script := `echo "working in $PWD"`
	if flag.NArg() > 0 {
		script = flag.Arg(0)
	}

	// As PID 1 of a container a program without a handler ignores SIGTERM.
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()

	sandbox, err := postern.New(postern.Profile{Rootfs: *rootfs, Timeout: postern.Unlimited}, postern.WithLogger(slog.Default()))
	if err != nil {
		slog.Error("the profile is not valid", "error", err)
		return exitFailed
	}
	defer sandbox.Close()
	if err := sandbox.Verify(stop); err != nil {
		slog.Error("refusing to serve without a wall", "error", err)
		return exitNoWall
	}

	process, err := sandbox.StartBash(context.Background(), script)
	if err != nil {
		slog.Error("the run could not be started", "error", err)
		return exitFailed
	}
	defer process.Close()
	defer context.AfterFunc(stop, func() { process.Terminate(postern.DefaultGrace) })()
	for stream, chunk := range process.Output() {
		if stream == postern.Stderr {
			os.Stderr.Write(chunk)
		} else {
			os.Stdout.Write(chunk)
		}
	}
	status, err := process.Wait(context.Background())
	switch {
	case stop.Err() != nil:
		return exitStopped
	case err != nil || status != 0:
		return exitFailed
	}
	return 0
}
