package workspace

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Compression is the format of an archive that is written. Reading finds out by itself.
type Compression int

const (
	Uncompressed Compression = iota
	Gzip
	Zstd
)

func (c Compression) String() string {
	switch c {
	case Uncompressed:
		return "none"
	case Gzip:
		return "gzip"
	case Zstd:
		return "zstd"
	}
	return "Compression(" + strconv.Itoa(int(c)) + ")"
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// writer compresses in the caller's goroutine, so the same input gives the same bytes.
func (c Compression) writer(w io.Writer) (io.WriteCloser, error) {
	switch c {
	case Uncompressed:
		return nopCloser{w}, nil
	case Gzip:
		return gzip.NewWriter(w), nil
	case Zstd:
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	}
	return nil, fmt.Errorf("unknown %v: %w", c, errors.ErrUnsupported)
}

// CompressionError is returned for an archive in a format that cannot be read here.
// It matches [errors.ErrUnsupported].
type CompressionError struct{ Format string }

func (e *CompressionError) Error() string {
	return fmt.Sprintf("the archive is compressed with %s, which is not supported: decompress it first, or use gzip, bzip2 or zstd", e.Format)
}

func (e *CompressionError) Unwrap() error { return errors.ErrUnsupported }

const (
	blockSize = 512 // of a tar archive
	maxWindow = 128 << 20
)

// decompress finds out how an archive is compressed and gives its plain bytes.
// release must be called when they are no longer needed.
func decompress(r io.Reader) (plain io.Reader, release func(), err error) {
	br := bufio.NewReaderSize(r, 256<<10)
	head, err := br.Peek(blockSize)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	if len(head) == 0 {
		return nil, nil, fmt.Errorf("the archive is empty: %w", io.ErrUnexpectedEOF)
	}
	nothing := func() {}
	has := func(magic string) bool { return strings.HasPrefix(string(head), magic) }
	switch {
	case isTarHeader(head):
		return br, nothing, nil
	case has("\x1f\x8b"):
		z, err := gzip.NewReader(br)
		return z, nothing, err
	case has("\x28\xb5\x2f\xfd"), len(head) > 4 && head[0]>>4 == 5 && string(head[1:4]) == "\x2a\x4d\x18":
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case has("BZh"):
		return bzip2.NewReader(br), nothing, nil
	}
	for magic, format := range map[string]string{
		"\xfd7zXZ\x00": "xz", "\x5d\x00\x00": "lzma", "\x04\x22\x4d\x18": "lz4",
		"LZIP": "lzip", "\x1f\x9d": "compress", "PK\x03\x04": "zip", "\x89LZO": "lzop",
	} {
		if has(magic) {
			return nil, nil, &CompressionError{format}
		}
	}
	return br, nothing, nil // archive/tar says what is wrong with it
}

// isTarHeader reports whether a block carries a tar header's checksum, which a
// file name that looks like a compressed stream does not change.
func isTarHeader(block []byte) bool {
	if len(block) < blockSize {
		return false
	}
	if bytes.Count(block, []byte{0}) == blockSize {
		return true
	}
	const at, size = 148, 8
	want, err := strconv.ParseInt(strings.Trim(string(block[at:at+size]), " \x00"), 8, 64)
	if err != nil {
		return false
	}
	var unsigned, signed int64
	for i, b := range block {
		if i >= at && i < at+size {
			b = ' '
		}
		unsigned += int64(b)
		signed += int64(int8(b))
	}
	return want == unsigned || want == signed
}
