package workspace

import (
	"fmt"
	"math"
)

// Finding is one thing that was neutralised. Path is untrusted: quote it before
// it goes into a log, as String does.
type Finding struct {
	Path   string
	Reason Reason
}

func (f Finding) String() string { return quote(f.Path) + ": " + string(f.Reason) }

// A guest can make millions of findings, with long names. Each list of a [Report]
// holds MaxFindings at most, and both together paths of MaxFindingBytes. The first is always
// there; those beyond are counted in Omitted.
const (
	MaxFindings     = 10_000
	MaxFindingBytes = 4 << 20
)

// Report tells what an operation carried over and what it neutralised. It is
// valid after an error too, and then tells what was done before it.
type Report struct {
	Files, Dirs int64
	Bytes       int64  // of file contents
	Last        string // the last file or directory completed; an archive is written and restored in its order

	// Skipped was left out: links, special files, names that escape, what could not be read.
	Skipped []Finding
	// Changed was carried over, or stayed, but not as it was: without a set-user-ID or
	// set-group-ID bit or file capabilities; with zeros for a missing end (Torn); or as a new
	// file in place of the link or special file that was found under its name.
	Changed []Finding
	// Omitted counts the findings for which there was no room in the lists.
	Omitted int64

	pathBytes int
}

// OK reports whether nothing was left out.
func (r *Report) OK() bool { return len(r.Skipped) == 0 }

// Skip adds a finding to Skipped, within the bounds. It is for programs that carry
// [Workspace.Contents] elsewhere.
func (r *Report) Skip(path string, why Reason) { r.add(&r.Skipped, path, why) }

// Change adds a finding to Changed, within the bounds.
func (r *Report) Change(path string, why Reason) { r.add(&r.Changed, path, why) }

func (r *Report) add(list *[]Finding, path string, why Reason) {
	full := len(*list) >= MaxFindings || r.pathBytes+len(path) > MaxFindingBytes
	if full && len(*list) > 0 {
		r.Omitted++
		return
	}
	r.pathBytes += len(path)
	*list = append(*list, Finding{path, why})
}

// OnUnsafe says what to do about what cannot be carried over safely.
type OnUnsafe int

const (
	Skip OnUnsafe = iota // leave it out, say so in the report
	Fail                 // stop with an error that names it
)

// refuse records a finding, or makes it an error.
func (o OnUnsafe) refuse(op string, list func(string, Reason), path string, why Reason) error {
	if o == Skip {
		list(path, why)
		return nil
	}
	q := quote(path)
	return wrap(op, path, fmt.Errorf("neutralized %s entry '%s': %w", string(why), q[1:len(q)-1], why))
}

// Unlimited, or any negative number, switches a limit off.
const Unlimited = -1

// The limits that apply where none is given.
const (
	DefaultMaxEntries = 1 << 20
	DefaultMaxBytes   = 16 << 30
	DefaultMaxDepth   = maxDepth
	DefaultMaxPath    = 64 << 10
)

// Limits bounds an archive, while packing and while restoring. A zero stands for the default.
// A limit that would be exceeded is a [*LimitError] before anything is written beyond it.
type Limits struct {
	MaxEntries int64 // files, directories and whatever is skipped; also the names in one directory, when packing
	MaxBytes   int64 // of file contents together
	MaxDepth   int64 // levels of directories
	MaxPath    int64 // bytes of one name
}

// effective gives every limit a number.
func (l Limits) effective() Limits {
	pick := func(n, byDefault int64) int64 {
		switch {
		case n < 0:
			return math.MaxInt64
		case n == 0:
			return byDefault
		}
		return n
	}
	return Limits{
		MaxEntries: pick(l.MaxEntries, DefaultMaxEntries),
		MaxBytes:   pick(l.MaxBytes, DefaultMaxBytes),
		MaxDepth:   pick(l.MaxDepth, DefaultMaxDepth),
		MaxPath:    pick(l.MaxPath, DefaultMaxPath),
	}
}

// meter counts against effective limits.
type meter struct {
	what    string
	max     Limits
	entries int64
	bytes   int64
}

func (m *meter) entry() error {
	if m.entries++; m.entries > m.max.MaxEntries {
		return &LimitError{m.what, "max_entries", m.max.MaxEntries}
	}
	return nil
}

func (m *meter) name(path string) error {
	if int64(len(path)) > m.max.MaxPath {
		return &LimitError{m.what, "max_path", m.max.MaxPath}
	}
	if int64(depth(path)) > m.max.MaxDepth {
		return &LimitError{m.what, "max_depth", m.max.MaxDepth}
	}
	return nil
}

func (m *meter) content(n int64) error {
	if n < 0 || n > m.max.MaxBytes-m.bytes {
		return &LimitError{m.what, "max_bytes", m.max.MaxBytes}
	}
	m.bytes += n
	return nil
}
