package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

const runExample = "POSTERN_RUN_EXAMPLE"

func TestMain(m *testing.M) {
	if os.Getenv(runExample) != "" {
		main()
		return
	}
	os.Exit(testutil.Main(m))
}

func TestExample(t *testing.T) {
	testutil.RequireTool(t, "git")
	testutil.EachUser(t, func(t *testing.T) {
		const want = `== clone
What is six times seven?
== push to the repository for results
== push to the source, which is for reading
refused
== the network
there is none
== what the host has now
the answer is 42
`
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), runExample+"=1")
		if got, err := cmd.CombinedOutput(); err != nil || string(got) != want {
			t.Errorf("%v, it printed:\n%s\nwant:\n%s", err, got, want)
		}
	})
}
