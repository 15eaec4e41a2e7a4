//go:build !linux

package postern

import (
	"context"
	"io"
	"os"
	"syscall"

	"github.com/populationgenomics/postern-go/workspace"
)

// No guest ever runs on this operating system; these are what the rest of the
// package is written in terms of.

type guest struct{}

func (*guest) PID() int                    { return 0 }
func (*guest) Done() <-chan struct{}       { return nil }
func (*guest) Signal(syscall.Signal) error { return os.ErrProcessDone }
func (*guest) Dup() (*os.File, error)      { return nil, os.ErrProcessDone }
func (*guest) Terminal() *os.File          { return nil }
func (*guest) result() Result              { return noResult }
func (*guest) close()                      {}

type oomCounter struct{}

func openOOMCounter() oomCounter { return oomCounter{} }
func (oomCounter) close()        {}

type templates struct{}

func (*templates) close() {}

type output struct{}

func (*output) read([]byte) (Stream, int, error) { return 0, 0, io.EOF }
func (*output) close()                           {}

func (*Sandbox) launch(Command, *resources) error { return ErrUnsupported }
func (*Sandbox) verify(context.Context) error     { return ErrUnsupported }
func (*Sandbox) owner() *workspace.Owner          { return nil }

func resize(*os.File, WindowSize) error { return ErrUnsupported }
func preflight() error                  { return ErrUnsupported }
