package stage_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"github.com/populationgenomics/postern-go/internal/stage"
)

// A program is data. To see what happens when a step fails, copy it, put a
// call that fails in the step's place and run that.
func Example_failingStep() {
	var b stage.Builder
	fd, record := b.Slot(), b.Slots(4)
	b.SysTo(fd, stage.Step{Do: "open", On: "/dev/null"}, stage.Openat, stage.FD(-100), stage.Str("/dev/null"), stage.Imm(0), stage.Imm(0))
	b.Sys(stage.Step{Do: "close", On: "/dev/null"}, stage.Close, fd)
	b.Sys(stage.Step{Do: "exit"}, stage.ExitGroup, stage.Imm(0))
	b.Place(&b.Fail)
	b.Move(record, stage.Imm(stage.Failed))
	b.Move(record+1, stage.FailedOp)
	b.Move(record+2, stage.FailedErrno)
	b.Try(stage.Discard, stage.Step{Do: "report"}, stage.Write, stage.FD(1), stage.SlotAddr(record), stage.Imm(stage.RecordSize))
	b.Try(stage.Discard, stage.Step{Do: "exit"}, stage.ExitGroup, stage.Imm(1))
	good := b.Program()

	bad := *good
	bad.Ops = slices.Clone(good.Ops)
	bad.Ops[1].Args = []stage.Arg{stage.FD(-1)}

	for _, p := range []*stage.Program{good, &bad} {
		fmt.Println(launch(p))
	}
	// Output:
	// started
	// close /dev/null: bad file descriptor
}

func launch(p *stage.Program) string {
	image, err := p.Image()
	if err != nil {
		return err.Error()
	}
	f, err := stage.Seal("example", image)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	var status bytes.Buffer
	cmd := &exec.Cmd{Path: "/proc/self/fd/3", ExtraFiles: []*os.File{f}, Stdout: &status}
	if err := cmd.Run(); err == nil {
		return "started"
	}
	r, err := stage.ParseRecord(status.Bytes())
	if err != nil {
		return err.Error()
	}
	step, _ := p.FailedStep(image, r)
	return fmt.Sprintf("%s: %s", step, syscall.Errno(-r.B))
}
