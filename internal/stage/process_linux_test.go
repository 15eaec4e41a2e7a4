package stage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// start starts the image of a program with pipes for stdin and stdout.
func start(t *testing.T, build func(*Builder)) (cmd *exec.Cmd, stdin io.WriteCloser, stdout io.Reader) {
	t.Helper()
	if _, ok := Host(); !ok {
		t.Skip("no stage for this architecture")
	}
	_, image, err := (&testCase{build: build}).link()
	if err != nil {
		t.Fatal(err)
	}
	in, inWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outReader, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd = command(t, image)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
	err = cmd.Start()
	in.Close()
	out.Close()
	t.Cleanup(func() { // which also ends whoever waits for its stdin
		inWriter.Close()
		outReader.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return cmd, inWriter, outReader
}

// A footprint is what a process consists of, as /proc tells.
type footprint struct {
	threads   int
	privateKB int
	files     []string // that are mapped
	writableX []string // mappings that are writable and executable
	stack     string   // its permissions
}

func footprintOf(t *testing.T, pid int) (f footprint) {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	f.threads = field(t, read("status"), "Threads:")
	rollup := read("smaps_rollup")
	f.privateKB = field(t, rollup, "Private_Clean:") + field(t, rollup, "Private_Dirty:")
	for line := range strings.Lines(read("maps")) {
		columns := strings.Fields(line)
		perms, path := columns[1], ""
		if len(columns) > 5 {
			path = columns[5]
		}
		if strings.HasPrefix(path, "/") {
			f.files = append(f.files, path)
		}
		if strings.Contains(perms, "w") && strings.Contains(perms, "x") {
			f.writableX = append(f.writableX, line)
		}
		if path == "[stack]" {
			f.stack = perms
		}
	}
	return f
}

// field returns the number that follows a name in a file of /proc.
func field(t *testing.T, text, name string) int {
	t.Helper()
	_, rest, ok := strings.Cut("\n"+text, "\n"+name)
	if !ok {
		t.Fatalf("no %q in %q", name, text)
	}
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestProcessHasNoRuntime looks at a stage process that waits for its host.
func TestProcessHasNoRuntime(t *testing.T) {
	cmd, stdin, stdout := start(t, func(b *Builder) {
		m := b.Mem(1)
		b.Sys(Step{"say that it runs", ""}, Write, Imm(1), Str("x"), Imm(1))
		b.Sys(Step{"wait for the host", ""}, Read, Imm(0), m, Imm(1))
	})
	if _, err := io.ReadFull(stdout, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	f := footprintOf(t, cmd.Process.Pid)
	t.Logf("%+v", f)
	if f.threads != 1 {
		t.Errorf("%d threads", f.threads)
	}
	if f.privateKB >= 64 {
		t.Errorf("%d KiB of private memory, want less than 64", f.privateKB)
	}
	if len(f.files) != 1 || f.files[0] != "/memfd:postern-stage-test" {
		t.Errorf("mapped files: %q", f.files)
	}
	if f.writableX != nil {
		t.Errorf("writable and executable: %q", f.writableX)
	}
	if f.stack != "rw-p" {
		t.Errorf("stack is %q", f.stack)
	}

	// The same look at this process, which has a runtime, sees that.
	self := footprintOf(t, os.Getpid())
	if self.threads < 2 || self.privateKB < 64 || len(self.files) == 0 || self.files[0] == f.files[0] {
		t.Errorf("this process looks like a stage: %+v", self)
	}

	// Most kernels refuse to open an executable that is running. Those that do
	// not still honour the seals.
	exe, err := os.OpenFile(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid), os.O_WRONLY, 0)
	if err == nil {
		_, err = exe.Write([]byte{0})
		exe.Close()
	}
	if !errors.Is(err, unix.ETXTBSY) && !errors.Is(err, unix.EPERM) {
		t.Errorf("change the image of a running process: %v", err)
	}

	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestForkBesideParent makes a child of the host, as the init is, and lets its
// maker exit before it.
func TestForkBesideParent(t *testing.T) {
	for _, test := range []struct {
		name   string
		flags  int64
		shared bool
	}{
		{"sharing memory", unix.CLONE_VM | unix.CLONE_PARENT, true},
		{"with a copy", unix.CLONE_PARENT, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd, stdin, stdout := start(t, func(b *Builder) {
				var child Label
				m, pid, x := b.Mem(1), b.Slot(), b.Slot()
				b.Move(pid, Imm(111))
				b.Move(x, Imm(7))
				b.Fork(pid, Step{"fork", ""}, test.flags, &child)
				b.Move(x, Imm(42))
				dump(b, pid, 1)
				b.Sys(Step{"exit", ""}, ExitGroup, Imm(3))
				b.Place(&child)
				b.Sys(Step{"wait for the host", ""}, Read, Imm(0), m, Imm(1))
				dump(b, pid, 2)
				b.Sys(Step{"exit", ""}, ExitGroup, Imm(5))
			})
			var first [8]byte
			if _, err := io.ReadFull(stdout, first[:]); err != nil {
				t.Fatal(err)
			}
			pid := int(binary.LittleEndian.Uint64(first[:]))
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
				t.Errorf("the maker of the child: %v, want exit status 3", err)
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil {
				t.Fatal(err)
			}
			if parent := field(t, string(status), "PPid:"); parent != os.Getpid() {
				t.Errorf("parent is %d, want this process, %d", parent, os.Getpid())
			}
			stdin.Close()
			rest, err := io.ReadAll(stdout)
			if err != nil {
				t.Fatal(err)
			}
			want := words(111, 7)
			if test.shared {
				want = words(int64(pid), 42)
			}
			if string(rest) != want {
				t.Errorf("the child saw %x, want %x", rest, want)
			}
			var ws unix.WaitStatus
			if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil || ws.ExitStatus() != 5 {
				t.Errorf("the child: %v, status %#x, want exit status 5", err, ws)
			}
		})
	}
}
