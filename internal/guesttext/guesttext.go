// Package guesttext carries text that a guest chose into a log.
//
// A guest that picks a method name, an error message or a file name picks what
// the host writes down. Raw, a newline starts what reads like another entry, and
// a terminal escape rewrites the ones before it. Text is the form in which such
// a value is handed to a logger.
package guesttext

import (
	"log/slog"
	"strconv"
	"unicode/utf8"
)

// MaxBytes is how much of a value is shown, counted before escaping. Escaping
// makes it at most four times longer.
const MaxBytes = 512

// Text is a value the guest chose. Logged by slog, or formatted with %s or %v,
// it is one line of printable characters of bounded length, whatever it holds:
//
//   - control characters, invalid UTF-8, line and paragraph separators, and
//     characters that are invisible or turn the direction of writing are
//     escaped as in a Go string literal, as are the quote and the backslash,
//     so that two different values of up to MaxBytes never look alike;
//   - what is beyond MaxBytes is replaced by a count of the missing bytes.
//
// Text does not tell apart printable characters that look the same.
// Conversion to string gives the raw bytes back.
type Text string

// String returns the escaped, capped form.
func (t Text) String() string {
	shown := string(t)
	if len(shown) > MaxBytes {
		shown = shown[:cut(shown)]
	}
	quoted := strconv.Quote(shown)
	escaped := quoted[1 : len(quoted)-1]
	if missing := len(t) - len(shown); missing > 0 {
		escaped += "... (" + strconv.Itoa(missing) + " more bytes)"
	}
	return escaped
}

// GoString is String, so that %#v is no way around it.
func (t Text) GoString() string { return t.String() }

// LogValue implements [slog.LogValuer].
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// cut returns where to end s: at MaxBytes, or before the character there
// rather than in the middle of it.
func cut(s string) int {
	for n := MaxBytes; n > MaxBytes-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return n
		}
	}
	return MaxBytes
}
