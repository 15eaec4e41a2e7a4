// Package clients runs programs that other people wrote to call bwrap, with
// bubblewrap's bwrap and with ours, and compares what comes of it: the original
// postern in Python and its own tests, Anthropic's srt, and flatpak.
//
// fetch.sh gets the first two; flatpak comes from the distribution. The
// original's own tests have time limits, which a busy machine does not keep:
//
//	go test -tags original ./tests/clients
package clients
