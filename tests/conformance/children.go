//go:build linux

package main

import (
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// children keeps apart the processes that were started here, each of which somebody waits for, and the orphans
// that a subreaper inherits, which nobody else will reap.
type children struct {
	mu      sync.Mutex
	started map[int]bool
}

func (c *children) start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if c.started == nil {
		c.started = map[int]bool{}
	}
	c.started[cmd.Process.Pid] = true
	return nil
}

func (c *children) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.started, cmd.Process.Pid)
	return err
}

// waitReaping is for the init of a namespace, which cannot end before the orphans from there are reaped.
func (c *children) waitReaping(cmd *exec.Cmd) {
	done := make(chan struct{})
	go func() { c.wait(cmd); close(done) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			c.orphans()
		}
	}
}

// orphans reaps those that have ended and returns the others.
func (c *children) orphans() (alive []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pid := range childrenOf(os.Getpid()) {
		if c.started[pid] {
			continue
		}
		if reaped, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err == nil && reaped == 0 {
			alive = append(alive, pid)
		}
	}
	return alive
}
