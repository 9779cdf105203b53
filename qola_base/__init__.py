"""The modules that every part needs: errors, files, JSON, progress, formats, code objects.

In: files and text. Out: checked values, or findings.
"""
