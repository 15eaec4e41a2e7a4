package streamhatch

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	postern "github.com/populationgenomics/postern-go"
	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/testutil"
)

// git runs git on the host, with no configuration but the test's.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(testutil.RequireTool(t, "git"), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// A repository is a bare one and a work tree to fill it from.
type repository struct {
	t          testing.TB
	bare, work string
}

func newRepository(t testing.TB) repository {
	t.Helper()
	dir := t.TempDir()
	r := repository{t, filepath.Join(dir, "secret-name.git"), filepath.Join(dir, "work")}
	git(t, dir, "init", "-q", "--bare", "-b", "main", r.bare)
	git(t, dir, "init", "-q", "-b", "main", r.work)
	r.commit("file", "one\n")
	return r
}

func (r repository) commit(name, contents string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.work, name), []byte(contents), 0o644); err != nil {
		r.t.Fatal(err)
	}
	git(r.t, r.work, "add", name)
	git(r.t, r.work, "commit", "-q", "-m", "commit "+name)
	git(r.t, r.work, "push", "-q", r.bare, "main")
}

func (r repository) head() string {
	r.t.Helper()
	return git(r.t, r.bare, "rev-parse", "refs/heads/main")
}

// named is a hatch that the test closes.
func named(t testing.TB, name string, handler Handler) *Hatch {
	t.Helper()
	h, err := New(handler, Config{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func newSandbox(t testing.TB, p postern.Profile, hatches ...hatch.Hatch) *postern.Sandbox {
	t.Helper()
	s, err := postern.New(p, postern.WithHatch(hatches...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// bash runs a script in a sandbox, in which git is told what it insists on, and
// $URL is a function that prints the URL of a hatch.
func bash(t testing.TB, s *postern.Sandbox, script string) postern.Result {
	t.Helper()
	const preamble = `set -e
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=G GIT_AUTHOR_EMAIL=g@example.org GIT_COMMITTER_NAME=G GIT_COMMITTER_EMAIL=g@example.org
url() { echo "ext::$POSTERN_CONNECT /run/postern/$1.sock"; }
git() { command git -c protocol.ext.allow=always "$@"; }
`
	r, err := s.RunBash(context.Background(), preamble+script)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustBash(t testing.TB, s *postern.Sandbox, script string) string {
	t.Helper()
	r := bash(t, s, script)
	if !r.OK() {
		t.Fatalf("%s\nended with %d (%v):\n%s%s", script, r.ExitCode, r.Reason, r.Stdout, r.Stderr)
	}
	return strings.TrimSpace(string(r.Stdout))
}

// Promises 202, 219, 220, 222: git in the guest, by the URL alone.
func TestGitClone(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		r := newRepository(t)
		s := newSandbox(t, postern.Profile{}, named(t, "repo", GitUploadPack(r.bare)))
		result, err := s.Run(context.Background(), "git", "-c", "protocol.ext.allow=always", "clone", "-q", GitURL("repo"), "work")
		if err != nil || !result.OK() {
			t.Fatalf("%v, %d\n%s%s", err, result.ExitCode, result.Stdout, result.Stderr)
		}
		if got := mustBash(t, s, "cat work/file; command git -C work rev-parse HEAD; test -S $POSTERN_HATCH_REPO; echo $POSTERN_HATCH_REPO $POSTERN_CONNECT"); got != "one\n"+r.head()+"\n/run/postern/repo.sock /run/postern/connect" {
			t.Error(got)
		}
		// The connector cannot be changed, nor replaced.
		if got := bash(t, s, "(echo x > $POSTERN_CONNECT) || (rm -f $POSTERN_CONNECT) || (mv /bin/true $POSTERN_CONNECT) || echo no"); strings.TrimSpace(string(got.Stdout)) != "no" {
			t.Errorf("%s%s", got.Stdout, got.Stderr)
		}
		// No message has a path of the host.
		if got := bash(t, s, `git clone "$(url repo)" other 2>&1; git ls-remote "$(url repo)" 2>&1; GIT_TRACE_PACKET=1 git ls-remote "$(url repo)" 2>&1`); strings.Contains(string(got.Stdout), "secret-name") {
			t.Errorf("%s", got.Stdout)
		}
	})
}

func TestGitFetchAndShallowClone(t *testing.T) {
	r := newRepository(t)
	s := newSandbox(t, postern.Profile{}, named(t, "repo", GitUploadPack(r.bare)))
	mustBash(t, s, `git clone -q "$(url repo)" work`)
	r.commit("second", "two\n")
	r.commit("third", "three\n")
	if got := mustBash(t, s, `cd work; git fetch -q; command git rev-parse origin/main; git pull -q; cat third`); got != r.head()+"\nthree" {
		t.Errorf("fetch and pull: %s", got)
	}
	if got := mustBash(t, s, `git clone -q --depth 1 "$(url repo)" shallow; cd shallow; command git rev-list --count HEAD; ls; git fetch -q --unshallow; command git rev-list --count HEAD`); got != "1\nfile\nsecond\nthird\n3" {
		t.Errorf("shallow clone: %s", got)
	}
}

// Promises 181, 221, 223: one socket for each resource, and what a socket leads
// to cannot be talked into anything else.
func TestGitPushHasAHatchOfItsOwn(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		r, other := newRepository(t), newRepository(t)
		other.commit("other", "another repository\n")
		s := newSandbox(t, postern.Profile{},
			named(t, "repo", GitUploadPack(r.bare)), named(t, "push", GitReceivePack(r.bare)), named(t, "other", GitUploadPack(other.bare)))

		before := r.head()
		for _, attack := range []string{
			`git push "$(url repo)" HEAD:main`,
			`git push --receive-pack=git-receive-pack "$(url repo)" HEAD:main`,
			`git send-pack "$(url repo)" HEAD:refs/heads/main`,
			`printf '0036git-receive-pack /repository\0host=x\0' | $POSTERN_CONNECT $POSTERN_HATCH_REPO; exit 1`,
			`printf '%s' --upload-pack=evil git-receive-pack . | $POSTERN_CONNECT $POSTERN_HATCH_REPO; exit 1`,
		} {
			got := bash(t, s, `rm -rf work; git clone -q "$(url repo)" work; cd work; echo x > new; git add new; git commit -qm new; `+attack)
			if got.OK() || r.head() != before {
				t.Errorf("%s: %d, the repository has %s, had %s\n%s%s", attack, got.ExitCode, r.head(), before, got.Stdout, got.Stderr)
			}
			if strings.Contains(string(got.Stdout), "report-status") {
				t.Errorf("%s: a receive-pack answers: %q", attack, got.Stdout)
			}
		}

		// The control: by its own hatch the push works.
		pushed := mustBash(t, s, `rm -rf work; git clone -q "$(url repo)" work; cd work; echo x > new; git add new; git commit -qm new; git push -q "$(url push)" HEAD:main; command git rev-parse HEAD`)
		if got := r.head(); got != pushed || got == before {
			t.Errorf("the repository has %s, pushed was %s", got, pushed)
		}
		git(t, r.bare, "fsck", "--strict")

		// Two at once.
		if got := mustBash(t, s, `git clone -q "$(url repo)" a & git clone -q "$(url other)" b & wait; cat a/new b/other`); got != "x\nanother repository" {
			t.Errorf("two hatches: %s", got)
		}
	})
}

func TestGitLargeRepository(t *testing.T) {
	r := newRepository(t)
	const size = 200 << 20
	sum := sha256.New()
	f, err := os.Create(filepath.Join(r.work, "blob"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.MultiWriter(f, sum), rand.Reader, size); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{r.work, r.bare} { // it cannot be compressed
		git(t, dir, "config", "core.compression", "0")
		git(t, dir, "config", "pack.compression", "0")
	}
	git(t, r.work, "add", "blob")
	git(t, r.work, "commit", "-q", "-m", "large")
	git(t, r.work, "push", "-q", r.bare, "main")
	s := newSandbox(t, postern.Profile{}, named(t, "repo", GitUploadPack(r.bare)), named(t, "push", GitReceivePack(r.bare)))
	got := mustBash(t, s, `git -c core.compression=0 clone -q "$(url repo)" work; sha256sum < work/blob`)
	if want := fmt.Sprintf("%x  -", sum.Sum(nil)); got != want {
		t.Errorf("the blob has the sum %s, want %s", got, want)
	}
}

// plain is a service of git without what the presets add.
func plain(service string, r repository) *Command {
	c := Exec("git", "-c", "safe.directory=*", service, r.bare)
	c.Env = []string{"PATH=" + DefaultPath, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	return c
}

// A repository that a guest can write to has hooks and a configuration of the
// guest's, none of which has an effect.
func TestHooksAndConfigurationOfTheGuests(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		push := func(with func(r repository) (upload, receive *Command)) (ran string, result postern.Result) {
			r := newRepository(t)
			// The marker, where the host and where a sandboxed git would see it.
			run := "for d in " + r.bare + " " + gitDir + "; do echo %[1]s >>$d/planted; done 2>/dev/null; true"
			for _, hook := range []string{"pre-receive", "update", "post-receive", "post-update", "reference-transaction"} {
				if err := os.WriteFile(filepath.Join(r.bare, "hooks", hook), []byte("#!/bin/sh\n"+fmt.Sprintf(run, hook)+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, key := range []string{"core.fsmonitor", "core.sshCommand", "core.alternateRefsCommand", "core.gitProxy", "gpg.program", "uploadpack.packObjectsHook", "credential.helper", "core.askPass"} {
				git(t, r.bare, "config", key, fmt.Sprintf(run, key))
			}
			git(t, r.bare, "config", "core.hooksPath", filepath.Join(r.bare, "hooks"))
			// An alternate, so that there is something to ask about it.
			if err := os.WriteFile(filepath.Join(r.bare, "objects", "info", "alternates"), []byte("../../extra/objects\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			git(t, r.bare, "init", "-q", "--bare", "extra")

			upload, receive := with(r)
			s := newSandbox(t, postern.Profile{}, named(t, "repo", upload), named(t, "push", receive))
			result = bash(t, s, `git clone -q "$(url repo)" work; cd work; echo x > new; git add new; git commit -qm new; git push -q "$(url push)" HEAD:refs/heads/new; git ls-remote "$(url repo)"`)
			planted, _ := os.ReadFile(filepath.Join(r.bare, "planted"))
			return string(planted), result
		}
		ran, result := push(func(r repository) (*Command, *Command) { return GitUploadPack(r.bare), GitReceivePack(r.bare) })
		if ran != "" {
			t.Errorf("these were run:\n%s", ran)
		}
		if !strings.Contains(string(result.Stdout), "refs/heads/new") {
			t.Errorf("it is of no use any more: %s%s", result.Stdout, result.Stderr)
		}
		// The control: git on its own runs them.
		ran, result = push(func(r repository) (*Command, *Command) { return plain("upload-pack", r), plain("receive-pack", r) })
		for _, want := range []string{"pre-receive", "post-update", "core.alternateRefsCommand"} {
			if !strings.Contains(ran, want) {
				t.Errorf("%s was to be run, there ran:\n%s\n%s%s", want, ran, result.Stdout, result.Stderr)
			}
		}
	})
}

// A repository that borrows objects of another, by a path that a guest wrote,
// is no way to the other.
func TestBorrowedObjects(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		r, other := newRepository(t), newRepository(t)
		other.commit("other", "a secret of the host's\n")
		for name, text := range map[string]string{
			"objects/info/alternates": filepath.Join(other.bare, "objects") + "\n",
			"refs/heads/stolen":       other.head() + "\n",
		} {
			if err := os.WriteFile(filepath.Join(r.bare, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		steal := func(c *Command) string {
			s := newSandbox(t, postern.Profile{}, named(t, "repo", c))
			return string(bash(t, s, `git init -q work; cd work; git fetch -q "$(url repo)" stolen; command git show FETCH_HEAD:other`).Stdout)
		}
		if got := steal(GitUploadPack(r.bare)); strings.Contains(got, "secret") {
			t.Errorf("it got out: %q", got)
		}
		if got := steal(plain("upload-pack", r)); !strings.Contains(got, "secret") {
			t.Errorf("there is nothing to steal: %q", got)
		}
	})
}

// As root, git runs as the repository's owner, whom alone it belongs to.
func TestRepositoryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	r := newRepository(t)
	if err := filepath.WalkDir(r.bare, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, testutil.Nobody, testutil.Nobody))
	}); err != nil {
		t.Fatal(err)
	}
	for dir, mode := range map[string]fs.FileMode{r.bare: 0o700, filepath.Dir(filepath.Dir(r.bare)): 0o711} { // which can be passed
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	s := newSandbox(t, postern.Profile{}, named(t, "repo", GitUploadPack(r.bare)), named(t, "push", GitReceivePack(r.bare)))
	mustBash(t, s, `git clone -q "$(url repo)" work; cd work; echo x > new; git add new; git commit -qm new; git push -q "$(url push)" HEAD:refs/heads/new`)
	info, err := os.Stat(filepath.Join(r.bare, "refs", "heads", "new"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != testutil.Nobody {
		t.Errorf("what was pushed belongs to %+v, %v", info, err)
	}
}

// A directory that is no repository tells the guest nothing.
func TestNotARepository(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secret-name")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := newSandbox(t, postern.Profile{}, named(t, "repo", GitUploadPack(dir)))
	r := bash(t, s, `git clone "$(url repo)" work 2>&1; $POSTERN_CONNECT $POSTERN_HATCH_REPO </dev/null 2>&1`)
	if r.OK() || strings.Contains(string(r.Stdout)+string(r.Stderr), "secret-name") {
		t.Errorf("%d: %s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
}
