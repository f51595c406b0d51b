"""Reports as sections of text, tables and pictures, and how these become HTML, Markdown, CSV and LaTeX."""
