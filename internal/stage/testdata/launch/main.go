//go:build linux

// Command launch runs a program in the stage. It is built in several ways to
// show that the stage's code can be copied out of each of them.
package main

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/populationgenomics/postern-go/internal/stage"
)

func main() {
	if err := launch(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func launch() error {
	var b stage.Builder
	b.Sys(stage.Step{Do: "say hello"}, stage.Write, stage.FD(1), stage.Str("hello\n"), stage.Imm(6))
	b.Sys(stage.Step{Do: "exit"}, stage.ExitGroup, stage.Imm(0))
	b.Place(&b.Fail)
	b.Try(stage.Discard, stage.Step{Do: "exit"}, stage.ExitGroup, stage.Imm(1))
	image, err := b.Program().Image()
	if err != nil {
		return err
	}
	f, err := stage.Seal("hello", image)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := &exec.Cmd{Path: "/proc/self/fd/3", ExtraFiles: []*os.File{f}, Stdout: os.Stdout, Stderr: os.Stderr}
	return cmd.Run()
}
