//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/populationgenomics/postern-go/compat/bwrapflags"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// A bwrapLauncher is one call of this program in bubblewrap's stead.
type bwrapLauncher struct {
	args   []string
	parent int // as seen when this began
	fds    *inheritedFDs
	cmd    *bwrapflags.Command
}

// bwrapMain does what bwrap does with this command line, and returns the exit
// status if there is anybody left to exit.
func bwrapMain(args []string) int {
	l := &bwrapLauncher{args: args, parent: unix.Getppid()}
	if len(args) == 2 && args[1] == "--version" {
		fmt.Println(versionText(args[0]))
		return 0
	}
	if unix.Getuid() != unix.Geteuid() {
		return l.fail(said("setuid use of bubblewrap is not supported"))
	}
	l.fds = inherited()
	facts, err := l.facts()
	if err != nil {
		return l.fail(err)
	}
	cmd, err := bwrapflags.Parse(args[1:], os.Environ(), l.fds, facts)
	l.cmd = cmd
	for _, w := range cmd.Warnings {
		fmt.Fprintln(os.Stderr, w)
	}
	if err != nil {
		var bad *bwrapflags.Error
		if errors.As(err, &bad) && bad.Usage {
			fmt.Fprint(os.Stderr, bad)
		} else {
			fmt.Fprintln(os.Stderr, err)
		}
		return l.status()
	}
	switch cmd.Action {
	case bwrapflags.Help:
		fmt.Print(bwrapflags.Usage(args[0]))
		return 0
	case bwrapflags.ShowVersion:
		fmt.Println(versionText(args[0]))
		return 0
	case bwrapflags.Kernel:
		fmt.Println("5.12.0")
		return 0
	}
	return l.launch()
}

// status is the exit status of a launcher that could not launch.
func (l *bwrapLauncher) status() int {
	if l.cmd == nil || l.cmd.Spec.Launcher == nil || l.cmd.Spec.Launcher.FailStatus == 0 {
		return 1
	}
	return l.cmd.Spec.Launcher.FailStatus
}

func (l *bwrapLauncher) fail(err error) int {
	prefix := bwrapflags.Prefix(l.cmd != nil && l.cmd.LevelPrefix, bwrapflags.LevelError)
	fmt.Fprintln(os.Stderr, prefix+l.words(err))
	return l.status()
}

// words puts an error of the launch into bubblewrap's words.
func (l *bwrapLauncher) words(err error) string {
	var start *nsexec.StartError
	if errors.As(err, &start) {
		return l.phraseError(start)
	}
	return err.Error()
}

// versionText is the version for a program called by this name. Programs that
// look for bubblewrap want to see its name and nothing else.
func versionText(argv0 string) string {
	bwrap := "bubblewrap " + bwrapflags.Version
	if filepath.Base(argv0) == "bwrap" {
		return bwrap
	}
	version := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return "postern-launch " + version + ", compatible with " + bwrap
}
