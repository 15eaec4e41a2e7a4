// Command greeter lets an untrusted guest, once in Go and once in Python, call
// three of the four methods of a service of the host. The fourth is not on the
// allowlist, and there is no network.
//
//	go run ./examples/greeter [-venv DIR]
//
// The Python guest needs a virtual environment with grpcio and grpcio-tools,
// such as tests/venv.sh makes. Without it, only the Go guest runs.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	postern "github.com/populationgenomics/postern-go"
	pb "github.com/populationgenomics/postern-go/examples/greeter/greeterpb"
	"github.com/populationgenomics/postern-go/hatch/grpchatch"
)

var (
	//go:embed guest.py
	pythonGuest string
	//go:embed greeterpb/greeter.proto
	proto []byte
)

var venv = flag.String("venv", "", "virtual environment of the Python guest")

func main() {
	log.SetFlags(0)
	flag.Parse()
	run := host
	if flag.Arg(0) == "guest" {
		run = guest
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func host() (err error) {
	hatch, err := grpchatch.New(grpchatch.Config{Allow: []string{
		pb.Greeter_SayHello_FullMethodName,
		pb.Greeter_SayHelloMany_FullMethodName,
		pb.Greeter_Chat_FullMethodName,
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hatch.Close()) }()
	pb.RegisterGreeterServer(hatch, servicer{})

	self, err := os.Executable()
	if err != nil {
		return err
	}
	const path = "/opt/greeter" // where the Go guest is in the sandbox
	fmt.Println("== Go guest")
	profile := postern.Profile{RequiredBinds: []postern.Bind{{Host: self, Guest: path}}}
	if err := run(profile, hatch, postern.Command{Args: []string{path, "guest"}}); err != nil {
		return err
	}

	if *venv == "" {
		fmt.Println("== no Python guest: -venv is not set")
		return nil
	}
	fmt.Println("== Python guest")
	profile, err = postern.Profile{}.WithVenv(*venv)
	if err != nil {
		return err
	}
	profile.StubDir, err = generateStubs(profile.Python)
	if err != nil {
		return err
	}
	defer os.RemoveAll(profile.StubDir)
	return run(profile, hatch, postern.Python(pythonGuest))
}

// run runs a guest in a sandbox of its own.
func run(profile postern.Profile, hatch *grpchatch.Hatch, command postern.Command) (err error) {
	sandbox, err := postern.New(profile, postern.WithHatch(hatch))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sandbox.Close()) }()
	result, err := sandbox.RunCommand(context.Background(), command)
	if err != nil {
		return err
	}
	fmt.Printf("%s", result.Stdout)
	if !result.OK() {
		return fmt.Errorf("the guest ended with %d: %s", result.ExitCode, result.Stderr)
	}
	return nil
}

// generateStubs makes what the Python guest imports.
func generateStubs(python string) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "greeter-stubs-"); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if err := os.WriteFile(filepath.Join(dir, "greeter.proto"), proto, 0o644); err != nil {
		return "", err
	}
	cmd := exec.Command(python, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--grpc_python_out=.", "greeter.proto")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("generate the Python stubs: %w: %s", err, out)
	}
	return dir, nil
}
