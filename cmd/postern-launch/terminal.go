//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// runInTerminal runs a guest with a terminal of its own and carries bytes
// between that and the caller's. The two never meet: the guest cannot type
// into the caller's, whatever it does to its own.
func runInTerminal(s *nsexec.Spec) (int, error) {
	const tty = 0
	before, err := unix.IoctlGetTermios(tty, unix.TCGETS)
	if err != nil {
		return 0, fmt.Errorf("--terminal needs a terminal as standard input: %w", err)
	}
	s.Terminal = true
	if size, err := unix.IoctlGetWinsize(tty, unix.TIOCGWINSZ); err == nil {
		s.TerminalSize = *size
	}
	keepThread()
	p, err := nsexec.Start(s)
	if err != nil {
		return 0, err
	}
	master := p.Terminal()
	defer master.Close()

	if err := unix.IoctlSetTermios(tty, unix.TCSETS, raw(*before)); err != nil {
		p.Signal(unix.SIGKILL)
		<-p.Done()
		return 0, fmt.Errorf("make the terminal raw: %w", err)
	}
	defer unix.IoctlSetTermios(tty, unix.TCSETSW, before)

	signals := make(chan os.Signal, 8)
	withHandlers()
	signal.Notify(signals, unix.SIGWINCH, unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT)
	defer signal.Stop(signals)
	resize(tty, master)
	go io.Copy(master, os.Stdin)
	copied := make(chan struct{})
	go func() {
		io.Copy(os.Stdout, master) // ends with EIO when the guest has ended
		close(copied)
	}()
	for {
		select {
		case sig := <-signals:
			if sig == unix.SIGWINCH {
				resize(tty, master)
				continue
			}
			if err := p.Signal(sig.(unix.Signal)); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return 0, err
			}
		case <-p.Done():
			<-copied
			st, err := p.Wait(context.Background())
			return st.ExitCode, err
		}
	}
}

// resize gives the guest's terminal the size of the caller's.
func resize(tty int, master *os.File) {
	size, err := unix.IoctlGetWinsize(tty, unix.TIOCGWINSZ)
	if err != nil {
		return
	}
	conn, err := master.SyscallConn()
	if err != nil {
		return
	}
	conn.Control(func(fd uintptr) { unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
}

// raw is what cfmakeraw(3) makes of a terminal's settings: every key goes to
// the guest, whose own terminal gives it meaning.
func raw(t unix.Termios) *unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return &t
}
