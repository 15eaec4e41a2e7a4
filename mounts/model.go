//go:build linux

package mounts

import (
	"slices"
	"strings"
)

// A node is what the compiler knows about a path of the new root. Only what
// this program itself put on a fresh tmpfs is known; nobody else can reach
// that while it runs, so such a path needs no resolving when it is used.
type node struct {
	kind     kind
	target   string // of a symlink
	children map[string]*node
}

type kind uint8

const (
	unknown kind = iota // anything may be here and below
	absent
	directory
	file
	symlink
	procfs // a new one, in which nobody can make anything
	entry  // of a procfs, which may not exist but is no link
)

// procLinks are what else than entries can be named in a procfs.
var procLinks = []string{"..", "self", "thread-self", "mounts", "net", "device-tree"}

func newProcfs() *node { return &node{kind: procfs, children: map[string]*node{}} }

func newDir() *node { return &node{kind: directory, children: map[string]*node{}} }

// components splits a path, dropping what means nothing. ".." stays: with
// symbolic links about only the kernel can resolve it.
func components(p string) []string {
	var cs []string
	for c := range strings.SplitSeq(p, "/") {
		if c != "" && c != "." {
			cs = append(cs, c)
		}
	}
	return cs
}

// lookup returns what is known at a path: its node or nil if absent or
// unknown, and whether every directory above it is known.
func (n *node) lookup(cs []string) (k kind, at *node) {
	for i, c := range cs {
		if n.kind == procfs && i == len(cs)-1 && n.children[c] == nil && !slices.Contains(procLinks, c) {
			return entry, nil
		}
		if c == ".." || n.kind != directory {
			return unknown, nil
		}
		next := n.children[c]
		if next == nil {
			for _, rest := range cs[i:] {
				if rest == ".." {
					return unknown, nil
				}
			}
			return absent, nil
		}
		n = next
	}
	return n.kind, n
}

// set records n at a path whose parents are known; elsewhere there is nothing
// to record.
func (n *node) set(cs []string, child *node) {
	for _, c := range cs[:len(cs)-1] {
		if n.kind != directory {
			return
		}
		next := n.children[c]
		if next == nil {
			return
		}
		n = next
	}
	if n.kind == directory || n.kind == procfs {
		n.children[cs[len(cs)-1]] = child
	}
}

// knownDepth returns how many of the leading components are known directories.
func (n *node) knownDepth(cs []string) int {
	for i := range cs {
		if k, _ := n.lookup(cs[:i+1]); k != directory && k != procfs {
			return i
		}
	}
	return len(cs)
}
