//go:build !linux

package streamhatch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

var errUnsupported = fmt.Errorf("streamhatch: sandboxes, and so hatches, need Linux: %w", errors.ErrUnsupported)

// A Stream is a connection whose command the handler is to choose.
type Stream struct{ c *connection }

// ReadPreamble needs Linux.
func (s *Stream) ReadPreamble(n int, timeout time.Duration) ([]byte, error) {
	return nil, errUnsupported
}

// ReadLine needs Linux.
func (s *Stream) ReadLine(max int, timeout time.Duration) ([]byte, error) { return nil, errUnsupported }

// File needs Linux.
func (s *Stream) File() (*os.File, error) { return nil, errUnsupported }

func (c *Command) takeSysProcAttr(*syscall.SysProcAttr) error { return errUnsupported }
func (c *Command) adopt(*exec.Cmd) error                      { return errUnsupported }
func (c *Command) start(*Stream) (process, error)             { return nil, errUnsupported }
func (c *Command) abandon()                                   {}
func owner(string) (*User, error)                             { return nil, errUnsupported }
func probe() error                                            { return errUnsupported }
