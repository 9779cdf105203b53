"""Problems for each kernel instance, what they should give, and whether a kernel gave it.

In: a plan, the text of a dispatch, a kernel's results. Out: problems, tensors, verdicts.
"""
