package postern_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	postern "github.com/populationgenomics/postern-go"
)

func Example() {
	sandbox, err := postern.New(postern.Profile{})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()
	result, err := sandbox.RunPython(context.Background(), `
import os
print("a guest in", os.getcwd(), "as user", os.getuid())
`)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", result.Stdout)
	// Output: a guest in /workspace as user 65534
}

func ExampleSandbox_Run() {
	sandbox, err := postern.New(postern.Profile{})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()
	result, err := sandbox.Run(context.Background(), "cat", "/etc/shadow")
	if err != nil { // there was no run, or it was stopped
		log.Fatal(err)
	}
	fmt.Println(result.OK(), result.Reason, result.ExitCode)
	fmt.Printf("%s", result.Stderr)
	// Output:
	// false exited 1
	// cat: /etc/shadow: No such file or directory
}

func ExampleProcess_Output() {
	sandbox, err := postern.New(postern.Profile{})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()
	process, err := sandbox.StartBash(context.Background(), `
trap 'echo "last words"; exit 3' TERM
echo working
while :; do sleep 1 & wait; done`)
	if err != nil {
		log.Fatal(err)
	}
	defer process.Close()
	for stream, chunk := range process.Output() {
		fmt.Printf("%v: %s", stream, chunk)
		if strings.Contains(string(chunk), "working") {
			process.Terminate(postern.DefaultGrace)
		}
	}
	status, err := process.Wait(context.Background())
	fmt.Println(status, err)
	// Output:
	// stdout: working
	// stdout: last words
	// 3 <nil>
}

func ExampleSandbox_RunCommand() {
	sandbox, err := postern.New(postern.Profile{Env: []string{"LANG=C"}})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()
	result, err := sandbox.RunCommand(context.Background(), postern.Command{
		Args:  []string{"sort", "-n"},
		Input: []byte("10\n9\n8\n"),
	})
	fmt.Printf("%s%v\n", result.Stdout, err)
	// Output:
	// 8
	// 9
	// 10
	// <nil>
}

func ExampleSandbox_Verify() {
	sandbox, err := postern.New(postern.Profile{NoSeccomp: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()
	var noWall *postern.IsolationError
	if err := sandbox.Verify(context.Background()); errors.As(err, &noWall) {
		fmt.Println("refusing to serve:", noWall.Reason)
	}
	// Output: refusing to serve: seccomp is disabled; refusing to treat this as a hardened sandbox
}

func ExampleSandbox_Accessor() {
	sandbox, err := postern.New(postern.Profile{})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()
	sandbox.RunBash(context.Background(), "echo 42 > answer; ln -s /etc/hostname trap")

	files, err := sandbox.Accessor()
	if err != nil {
		log.Fatal(err)
	}
	defer files.Close()
	answer, err := files.ReadFile("answer")
	fmt.Printf("%s%v\n", answer, err)
	_, err = files.ReadFile("trap")
	fmt.Println(err != nil)
	// Output:
	// 42
	// <nil>
	// true
}
