package stage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A testCase is a program and what must come of it on every architecture.
type testCase struct {
	name  string
	build func(*Builder)
	stdin string                 // the contents of a regular file
	patch func(*Program, []byte) // changes the image before it runs
	want  outcome
	trap  bool // wants death by the signal of an undefined instruction

	// notEmulated says why the case runs on real hardware only.
	notEmulated string
}

// An outcome is how a stage process ended and what it wrote.
type outcome struct {
	Stdout string
	Failed string // the step and the error of the record on its stderr
	Exit   int
	Signal syscall.Signal
}

func (o outcome) String() string {
	return fmt.Sprintf("stdout of %d bytes %.2000q, failed %q, exit %d, signal %d",
		len(o.Stdout), o.Stdout, o.Failed, o.Exit, o.Signal)
}

// failedExit is how a program of this test ends after it has reported a failure.
const failedExit = 99

// finish ends a program: with exit 0, or with a record of the failed step.
func finish(b *Builder) {
	b.Sys(Step{"exit", ""}, ExitGroup, Imm(0))
	b.Place(&b.Fail)
	record := b.Slots(4)
	b.Move(record, Imm(Failed))
	b.Move(record+1, FailedOp)
	b.Move(record+2, FailedErrno)
	b.Try(Discard, Step{"report the failure", ""}, Write, Imm(2), SlotAddr(record), Imm(RecordSize))
	b.Try(Discard, Step{"exit", ""}, ExitGroup, Imm(failedExit))
}

func (c *testCase) link() (*Program, []byte, error) {
	var b Builder
	c.build(&b)
	if b.Fail.index == 0 {
		finish(&b)
	}
	p := b.Program()
	image, err := p.Image()
	if err == nil && c.patch != nil {
		c.patch(p, image)
	}
	return p, image, err
}

// sealed returns the image in a memfd that is closed when the test ends.
func sealed(t *testing.T, image []byte) *os.File {
	t.Helper()
	f, err := Seal("postern-stage-test", image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// command returns a command that executes the image.
func command(t *testing.T, image []byte) *exec.Cmd {
	t.Helper()
	// A signal may dump core into the working directory.
	return &exec.Cmd{Path: "/proc/self/fd/3", ExtraFiles: []*os.File{sealed(t, image)}, Dir: t.TempDir()}
}

// run runs a command that executes an image of p.
func run(t *testing.T, cmd *exec.Cmd, p *Program, image []byte, stdin string) outcome {
	t.Helper()
	in := filepath.Join(t.TempDir(), "stdin")
	if err := os.WriteFile(in, []byte(stdin), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = f, &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	o := outcome{Stdout: stdout.String()}
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		o.Signal = ws.Signal()
	} else {
		o.Exit = ws.ExitStatus()
	}
	if o.Exit == failedExit {
		o.Failed = explain(t, p, image, stderr.Bytes())
	}
	return o
}

// explain puts a Failed record into words, as a host does.
func explain(t *testing.T, p *Program, image, record []byte) string {
	t.Helper()
	r, err := ParseRecord(record)
	if err != nil || r.Kind != Failed || len(record) != RecordSize {
		t.Fatalf("stderr %q is no record of a failure: %+v, %v", record, r, err)
	}
	step, ok := p.FailedStep(image, r)
	if !ok {
		t.Fatalf("record %+v names no operation", r)
	}
	return fmt.Sprintf("%d: %s: %s", (r.A-int64(opsAddr(image)))/OpSize, step, syscall.Errno(-r.B))
}

// words is what a program writes that dumps slots or memory.
func words(w ...int64) string {
	var b []byte
	for _, v := range w {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return string(b)
}

// dump writes n neighbouring slots to stdout.
func dump(b *Builder, s Slot, n int) {
	b.Sys(Step{"dump", s.String()}, Write, Imm(1), SlotAddr(s), Imm(8*n))
}

func (c *testCase) check(t *testing.T, arch Arch, got outcome) {
	t.Helper()
	want := c.want
	if c.trap {
		want.Signal = [arches]syscall.Signal{AMD64: syscall.SIGILL, ARM64: syscall.SIGTRAP}[arch]
	}
	if got != want {
		t.Errorf("%s:\n got %v\nwant %v", arch, got, want)
	}
}

func TestPrograms(t *testing.T) {
	arch, ok := Host()
	if !ok {
		t.Skip("no stage for this architecture")
	}
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			p, image, err := c.link()
			if err != nil {
				t.Fatal(err)
			}
			c.check(t, arch, run(t, command(t, image), p, image, c.stdin))
		})
	}
}
