"""What it showed: image quality, tables and figures from files."""
