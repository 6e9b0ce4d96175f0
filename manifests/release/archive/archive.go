// Package archive writes reproducible tar archives: the bytes depend only on the files, not on the machine, the
// user or the time of writing.
package archive

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"strings"
	"time"
)

// File is a file of an archive, or a folder. It belongs to root.
type File struct {
	// Name is its path in the archive, with slashes, and a trailing slash for a folder.
	Name string
	// Mode are its permissions.
	Mode int64
	// Data is its content.
	Data []byte
}

// Write writes a tar archive of the files in their order, with modification time t in whole seconds. It uses
// USTAR, which has no fields for more.
func Write(w io.Writer, t time.Time, files []File) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		header := tar.Header{
			Typeflag: tar.TypeReg, Name: f.Name, Mode: f.Mode, Size: int64(len(f.Data)),
			ModTime: t, Format: tar.FormatUSTAR,
		}
		if strings.HasSuffix(f.Name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := archive.Write(f.Data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// WriteGzip is Write, compressed.
func WriteGzip(w io.Writer, t time.Time, files []File) error {
	z, err := gzip.NewWriterLevel(w, gzip.DefaultCompression) // with no name and no time in its header
	if err != nil {
		return err
	}
	if err := Write(z, t, files); err != nil {
		return err
	}
	return z.Close()
}
