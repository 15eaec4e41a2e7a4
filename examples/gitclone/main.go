// Command gitclone lets an untrusted guest clone one repository of the host, and
// push to another, with plain git and without a network.
//
//	go run ./examples/gitclone
//
// Each repository has a stream hatch of its own. What a guest can reach is
// decided by the hatches it has, so there is nothing in a request that would
// have to be checked.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	postern "github.com/populationgenomics/postern-go"
	"github.com/populationgenomics/postern-go/hatch/streamhatch"
)

const guest = `
set -e
export HOME=$PWD GIT_AUTHOR_NAME=Guest GIT_AUTHOR_EMAIL=guest@example.org GIT_COMMITTER_NAME=Guest GIT_COMMITTER_EMAIL=guest@example.org
git() { command git -c protocol.ext.allow=always "$@"; }

echo "== clone"
git clone -q "$SOURCE_URL" work
cat work/README

echo "== push to the repository for results"
cd work
echo 42 > answer
git add answer
git commit -q -m "The answer"
git push -q "$RESULTS_URL" HEAD:refs/heads/answer

echo "== push to the source, which is for reading"
git push -q "$SOURCE_URL" HEAD:refs/heads/answer 2>/dev/null || echo "refused"

echo "== the network"
command git ls-remote https://example.org/repo.git 2>/dev/null || echo "there is none"
`

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() (err error) {
	dir, err := os.MkdirTemp("", "gitclone-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source, results := filepath.Join(dir, "source"), filepath.Join(dir, "results.git")
	if err := makeRepositories(source, results); err != nil {
		return err
	}

	reading, err := streamhatch.New(streamhatch.GitUploadPack(filepath.Join(source, ".git")), streamhatch.Config{Name: "source"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reading.Close()) }()
	writing, err := streamhatch.New(streamhatch.GitReceivePack(results), streamhatch.Config{Name: "results"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, writing.Close()) }()

	sandbox, err := postern.New(postern.Profile{Env: []string{
		"SOURCE_URL=" + streamhatch.GitURL("source"),
		"RESULTS_URL=" + streamhatch.GitURL("results"),
	}}, postern.WithHatch(reading, writing))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sandbox.Close()) }()

	result, err := sandbox.RunBash(context.Background(), guest)
	if err != nil {
		return err
	}
	fmt.Printf("%s", result.Stdout)
	if !result.OK() {
		return fmt.Errorf("the guest ended with %d: %s", result.ExitCode, result.Stderr)
	}

	fmt.Println("== what the host has now")
	answer, err := git(results, "show", "answer:answer")
	fmt.Printf("the answer is %s", answer)
	return err
}

func makeRepositories(source, results string) error {
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", source},
		{"init", "-q", "--bare", "-b", "main", results},
	} {
		if _, err := git("/", args...); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(source, "README"), []byte("What is six times seven?\n"), 0o644); err != nil {
		return err
	}
	if _, err := git(source, "add", "README"); err != nil {
		return err
	}
	_, err := git(source, "-c", "user.name=Host", "-c", "user.email=host@example.org", "commit", "-q", "-m", "The question")
	return err
}

func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %q: %w: %s", args, err, out)
	}
	return string(out), nil
}
