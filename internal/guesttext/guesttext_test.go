package guesttext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestTextIsEscaped(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"/greeter.Greeter/SayHello", "/greeter.Greeter/SayHello"},
		{"café 日本", "café 日本"},
		{"a\nlevel=ERROR msg=forged", `a\nlevel=ERROR msg=forged`},
		{"\r\t\x00\x1b[2J", `\r\t\x00\x1b[2J`},
		{"\xff\xfe", `\xff\xfe`},
		{`\n`, `\\n`},
		{`"`, `\"`},
		{"a\u2028b\u202eb\u200b\u0085\ufeff", `a\u2028b\u202eb\u200b\u0085\ufeff`},
	} {
		if got := Text(tt.in).String(); got != tt.want {
			t.Errorf("Text(%q).String() = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestTextIsCapped(t *testing.T) {
	if got, want := Text(strings.Repeat("a", MaxBytes)).String(), strings.Repeat("a", MaxBytes); got != want {
		t.Errorf("a value of MaxBytes was changed: %s", got)
	}
	if got, want := Text(strings.Repeat("a", MaxBytes+7)).String(), strings.Repeat("a", MaxBytes)+"... (7 more bytes)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for lead := range utf8.UTFMax {
		in := strings.Repeat("a", lead) + strings.Repeat("\U0001f600", MaxBytes)
		if got := Text(in).String(); strings.Contains(got, `\x`) {
			t.Errorf("cut inside a character with %d bytes before it: %s", lead, got)
		}
	}
}

// Every way in which a value reaches a log line.
func TestTextCannotForgeALogEntry(t *testing.T) {
	const hostile = "x\n{\"level\":\"ERROR\",\"msg\":\"forged\"}\n"
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q"} {
		if got := fmt.Sprintf(verb, Text(hostile)); strings.Contains(got, "\n") {
			t.Errorf("a newline got through %s: %q", verb, got)
		}
	}
	var text, jsonText bytes.Buffer
	for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&text, nil)), slog.New(slog.NewJSONHandler(&jsonText, nil))} {
		log.Info("call", "method", Text(hostile), slog.Group("g", "error", Text(hostile)))
	}
	if n := strings.Count(text.String(), "\n"); n != 1 {
		t.Errorf("%d lines of text, want 1: %s", n, text.String())
	}
	if n := strings.Count(jsonText.String(), "\n"); n != 1 {
		t.Errorf("%d lines of JSON, want 1: %s", n, jsonText.String())
	}
	var entry struct{ Method string }
	if err := json.Unmarshal(jsonText.Bytes(), &entry); err != nil || strings.Contains(entry.Method, "\n") {
		t.Errorf("the decoded JSON entry holds the raw value: %q, %v", entry.Method, err)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\nb")
	f.Add(strings.Repeat("\xf0\x9f\x98", 400))
	f.Fuzz(func(t *testing.T, in string) {
		out := Text(in).String()
		if !utf8.ValidString(out) {
			t.Errorf("not UTF-8: %q", out)
		}
		if i := strings.IndexFunc(out, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("unprintable at %d: %q", i, out)
		}
		if len(out) > 4*MaxBytes+64 {
			t.Errorf("%d bytes long", len(out))
		}
	})
}
