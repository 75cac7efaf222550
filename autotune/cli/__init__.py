"""The command line: words in, a composed configuration, a study on the screen, files out."""
