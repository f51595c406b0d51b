"""The kit that figures are drawn with: looks, axes, lines, bars, legends and descriptions."""
